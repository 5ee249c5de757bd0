"""Data sets and problems: their exact definitions, on the real data where it is here."""

from urllib.error import URLError

import numpy as np
import pytest
import sklearn.datasets
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss

import untuned
from untuned_paper import datasets
from untuned_paper.problems import registry


def test_unknown_names_are_answered_with_the_nearest():
    with pytest.raises(ValueError, match="no data set 'covtyp'; the nearest name is 'covtype'"):
        datasets.load("covtyp")
    with pytest.raises(ValueError, match="no problem 'mnist'; the nearest name is 'mnist-"):
        registry.get("mnist")


@pytest.mark.parametrize("folder", [None, "empty"])
@pytest.mark.parametrize(
    ("name", "fetcher"), [("covtype", "fetch_covtype"), ("mnist", "fetch_openml")]
)
def test_offline_the_error_names_file_and_variable(name, fetcher, folder, monkeypatch, tmp_path):
    def offline(*_, **__):
        raise URLError("Temporary failure in name resolution")

    monkeypatch.setattr(sklearn.datasets, fetcher, offline)
    if folder:
        monkeypatch.setenv("UNTUNED_DATA", str(tmp_path))
    else:
        monkeypatch.delenv("UNTUNED_DATA", raising=False)
    with pytest.raises(ValueError) as caught:
        datasets.load(name)
    text = str(caught.value)
    assert "could not be downloaded" in text
    assert f"put {name}.npz" in text
    assert "UNTUNED_DATA" in text
    assert ("is not set" in text) == (folder is None)


def test_a_set_without_fetcher_says_so(monkeypatch):
    monkeypatch.delenv("UNTUNED_DATA", raising=False)
    with pytest.raises(
        ValueError, match=r"ijcnn1 is not here .* cannot be downloaded; put ijcnn1\.npz"
    ):
        datasets.load("ijcnn1")


def test_the_fetcher_is_used_where_no_file_is(monkeypatch, tmp_path):
    monkeypatch.setenv("UNTUNED_DATA", str(tmp_path))
    features, labels = np.ones((4, 2)), np.array([1, 2, 1, 2])
    monkeypatch.setattr(sklearn.datasets, "fetch_covtype", lambda **_: (features, labels))
    assert datasets.load("covtype")["X"] is features


@pytest.mark.parametrize("damage", ["truncated", "text", "field"])
def test_a_bad_file_is_named(damage, monkeypatch, tmp_path):
    path = tmp_path / "covtype.npz"
    np.savez(path, X=np.ones((40, 20)), **({} if damage == "field" else {"y": np.ones(40)}))
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:200])
    elif damage == "text":
        path.write_text("not an archive")
    monkeypatch.setenv("UNTUNED_DATA", str(tmp_path))
    words = "has no field 'y'; expected X, y" if damage == "field" else "cannot be read"
    with pytest.raises(ValueError, match=rf"covtype\.npz {words}"):
        datasets.load("covtype")


@pytest.mark.long
@pytest.mark.parametrize(("name", "features"), [("breast-cancer", 30), ("diabetes-ridge", 10)])
def test_bundled_selection_is_scikit_learns_at_equal_strengths(name, features):
    experiment = registry.get(name)
    assert experiment.x0.shape == (features,)
    rows, strength = len(experiment.inner_data.labels), np.exp(-1.0)
    if name == "diabetes-ridge":
        judge = Ridge(alpha=rows * strength, fit_intercept=False)
    else:
        judge = LogisticRegression(
            C=1 / (rows * strength), fit_intercept=False, tol=1e-9, max_iter=2000
        )
    judge.fit(*(np.asarray(z, np.float64) for z in experiment.inner_data[:2]))
    y = judge.coef_.ravel()
    metrics = experiment.metrics(np.full(features, -1.0), y)
    value = experiment.value(np.full(features, -1.0), experiment.y0)
    assert value == pytest.approx(metrics["validation_loss"], rel=1e-5)
    share = 1 - judge.score(*experiment.test_data[:2])
    assert metrics["test_error"] == pytest.approx(share, abs=1e-5)
    assert metrics["test_error"] < 0.7


def test_half_of_the_digits_labels_are_wrong():
    experiment = registry.get("digits-cleaning")
    features, labels = sklearn.datasets.load_digits(return_X_y=True)
    order = np.random.default_rng(2442).permutation(len(labels))
    train = order[2 * (len(labels) // 5) :]
    given = experiment.inner_data.labels
    assert np.sum(given != labels[train]) == len(train) // 2
    assert experiment.x0.shape == given.shape
    sides = (experiment.outer_data, experiment.test_data, experiment.inner_data)
    assert sum(len(side.labels) for side in sides) == len(features)
    assert np.array_equal(experiment.test_data.labels, labels[order[359:718]])


@pytest.mark.real_data("covtype")
@pytest.mark.parametrize(
    ("name", "strengths", "classes"), [("covtype", 54, 2), ("covtype-classes", 7, 7)]
)
def test_covtype(name, strengths, classes):
    experiment = registry.get(name)
    sizes = [
        len(rows.labels)
        for rows in (experiment.inner_data, experiment.outer_data, experiment.test_data)
    ]
    assert sizes == [371_847, 92_962, 116_203]
    assert experiment.x0.shape == (strengths,)
    features = experiment.inner_data.features
    np.testing.assert_allclose(features.mean(0), 0, atol=1e-3)
    assert features.dtype == np.float32
    # At y = 0 every class is equally likely.
    metrics = experiment.metrics(experiment.x0, experiment.y0)
    assert metrics["validation_loss"] == pytest.approx(np.log(classes), rel=1e-5)


@pytest.mark.real_data("covtype")
def test_value_function_is_scikit_learns():
    """One strength for all features is plain ridge: scikit-learn solves the same inner problem."""
    experiment = registry.get("covtype")
    few = 20_000
    small = registry.Experiment(
        **{
            **vars(experiment),
            "inner_data": registry.Rows(*(z[:few] for z in experiment.inner_data[:2])),
        }
    )
    x = np.full(54, -3.0)
    judge = LogisticRegression(C=np.exp(3.0) / few, fit_intercept=False, tol=1e-8, max_iter=2000)
    judge.fit(*(np.asarray(z, np.float64) for z in small.inner_data[:2]))
    expected = log_loss(
        experiment.outer_data.labels, judge.predict_proba(experiment.outer_data.features)
    )
    assert small.value(x, small.y0) == pytest.approx(expected, rel=1e-6)


@pytest.mark.real_data("ijcnn1")
def test_ijcnn1():
    experiment = registry.get("ijcnn1")
    assert len(experiment.inner_data.labels) == 49_990
    assert len(experiment.outer_data.labels) == 91_701
    assert set(np.unique(experiment.inner_data.labels)) == {-1.0, 1.0}
    assert np.all(experiment.x0 < 0)


@pytest.mark.real_data("mnist")
@pytest.mark.parametrize(("share", "redrawn"), [(0.5, 10_045), (0.7, 14_003), (0.9, 18_047)])
def test_mnist(share, redrawn):
    """The numbers of redrawn labels are those of the peer benchmark's split."""
    experiment = registry.get(f"mnist-{share}")
    labels = datasets.load("mnist")["y_train"]
    random = np.random.RandomState(32)
    train = random.permutation(60_000)[5_000:25_000]
    changed = random.rand(20_000) < share
    assert changed.sum() == redrawn
    given = experiment.inner_data.labels
    assert np.array_equal(given[~changed], labels[train][~changed])
    assert np.mean(given[changed] != labels[train][changed]) == pytest.approx(0.9, abs=0.02)
    metrics = experiment.metrics(experiment.x0, experiment.y0)
    assert metrics["validation_loss"] == pytest.approx(np.log(10), rel=1e-5)


@pytest.mark.real_data("mnist")
def test_minibatches_use_the_weights_of_their_rows():
    experiment = registry.get("mnist-0.5")
    rows = registry.Rows(*(z[:3] for z in experiment.inner_data))
    low = experiment.x0.copy()
    low[3:] = 5.0  # weights of rows that are not in the batch
    same = [float(experiment.inner(x, experiment.y0, rows)) for x in (experiment.x0, low)]
    assert same[0] == same[1]


@pytest.mark.real_data("mnist")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "loss"),
    [("s-tfbo", 1.68), (untuned.solvers.SOBA(step_size=1.0, outer_ratio=1e-4), 0.743)],
    ids=["s-tfbo", "soba"],
)
def test_mnist_losses_are_those_measured_before(method, loss):
    """By a prototype of others, before this code: after 20,480 steps at batch 64."""
    experiment = registry.get("mnist-0.5")
    result = untuned.minimize(
        **experiment.problem(), method=method, batch_size=64, max_steps=20_480
    )
    measured = experiment.metrics(result.x, result.y)["validation_loss"]
    assert measured == pytest.approx(loss, abs=0.02)
