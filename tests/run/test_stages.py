"""The rows `auto` works on: samples first where data are large, and samples on trial."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import untuned
from libraries import as_numpy, given
from reference.problems import cleaning
from untuned.ops.cache import reusable
from untuned.problem.build import build
from untuned.run import stages
from untuned.solvers import Auto


def large_logistic(rows=6000, features=4):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, features))
    t = np.where(X @ np.array([2.0, -1.0, 0.0, 0.0]) + rng.logistic(size=rows) > 0, 1.0, -1.0)
    loss = lambda y, batch: jnp.logaddexp(0.0, -batch[1] * (batch[0] @ y)).mean()
    return {
        "outer": reusable(lambda x, y, batch: loss(y, batch)),
        "inner": reusable(lambda x, y, batch: loss(y, batch) + 0.5 * (jnp.exp(x) * y**2).sum()),
        "x0": np.zeros(features),
        "y0": np.zeros(features),
        "outer_data": (X[:3000], t[:3000]),
        "inner_data": (X[3000:], t[3000:]),
    }


@pytest.fixture
def small_stages(monkeypatch):
    """Stages on data that a test can afford."""
    monkeypatch.setattr(stages, "LARGE", 0)
    monkeypatch.setattr(stages, "FEWEST_ROWS", 40)
    monkeypatch.setattr(stages, "ROWS_PER_VARIABLE", 5)


@pytest.mark.long
def test_samples_lead_to_the_same_end(small_stages, monkeypatch):
    task = large_logistic()
    problem = build(**task)
    with problem.precision():
        assert stages.plan(problem, Auto(stochastic=False), 0) == [1 / 64, 1 / 8, 1.0]
    nested = untuned.minimize(**task)
    monkeypatch.setattr(stages, "LARGE", 2**60)
    whole = untuned.minimize(**task)
    assert nested.status == whole.status == "converged"
    assert nested.history["outer"][-1] == pytest.approx(whole.history["outer"][-1], abs=1e-8)


def test_sums_over_rows_are_not_sampled(small_stages):
    task = large_logistic()
    mean = task["inner"]
    summed = task | {"inner": lambda x, y, batch: len(batch[1]) * mean(x, y, batch)}
    problem = build(**summed)
    with problem.precision():
        assert stages.plan(problem, Auto(stochastic=False), 0) == [1.0]


def test_large_data_of_one_row_are_not_sampled(monkeypatch):
    monkeypatch.setattr(stages, "LARGE", 0)
    block = {
        name: tuple(leaf[None] for leaf in large_logistic()[name])
        for name in ("outer_data", "inner_data")
    }
    task = large_logistic() | block

    def of_block(function):
        return lambda x, y, batch: function(x, y, tuple(leaf[0] for leaf in batch))

    task |= {name: of_block(task[name]) for name in ("outer", "inner")}
    problem = build(**task)
    with problem.precision():
        assert stages.plan(problem, Auto(stochastic=False), 0) == [1.0]


def test_a_stage_is_nested_in_the_next_and_leaves_rows_out(small_stages):
    task = large_logistic()
    number = np.arange(3000)
    problem = build(
        lambda x, y, batch: (batch[0] * y[0]).mean(), lambda x, y, batch: (batch[0] * y[0]).mean(),
        task["x0"], task["y0"], (number,), (number,),
    )  # fmt: skip
    small, large = (stages.rows(problem, Auto(stochastic=False), 0, s) for s in (1 / 64, 1 / 8))
    assert set(as_numpy(small.inner[0])) < set(as_numpy(large.inner[0]))
    assert len(set(as_numpy(large.inner[0]))) == 375
    assert not set(as_numpy(large.outer[0])) & set(as_numpy(large.held_out[0]))


@pytest.mark.long
def test_a_run_through_stages_resumes_exactly(small_stages, tmp_path):
    task = large_logistic()
    whole = untuned.minimize(**task)
    path = tmp_path / "run.safetensors"
    for steps in (2, 5, 1000):
        result = untuned.minimize(**task, checkpoint=path, max_steps=steps)
    np.testing.assert_array_equal(result.x, whole.x)
    assert result.steps == whole.steps


def weights_per_row(task):
    """Hyper-cleaning, in which x has an entry for every row, and the x of its first steps."""
    seen = []
    result = untuned.minimize(
        *task.positional, **task.data, callback=lambda snapshot: seen.append(snapshot.x) and None
    )
    return result, [as_numpy(x) for x in seen]


@pytest.mark.long
def test_a_sample_on_trial_moves_the_weights_of_all_rows(library, small_stages, monkeypatch):
    reference = cleaning(2, 2400, 2400, 5, 3, 0.4)
    task = given(reference, library)
    problem = build(*task.positional, task.outer_data, task.inner_data)
    with problem.precision():
        assert stages.plan(problem, Auto(stochastic=False), 0) == [1 / 8, 1.0]
        sample = stages.rows(problem, Auto(stochastic=False), 0, 1 / 8)
    assert len(as_numpy(sample.inner[1])) == 300
    assert len(as_numpy(sample.whole[1])) == 2400
    result, seen = weights_per_row(task)
    monkeypatch.setattr(stages, "LARGE", 2**60)
    whole, on_all_rows = weights_per_row(task)
    # The third step is still the sample's, which also has products on all rows.
    assert list(result.history["cross"][:3]) == [2, 4, 6]
    assert (seen[2] != 0).all()
    wrong = reference.inner_labels != reference.clean_labels
    assert np.corrcoef(seen[2], on_all_rows[2])[0, 1] > 0.9
    assert seen[2][wrong].mean() < 0 < seen[2][~wrong].mean()
    assert result.status == whole.status == "converged"
    assert result.history["outer"][-1] == pytest.approx(whole.history["outer"][-1], rel=1e-5)


@pytest.mark.long
def test_an_unfit_sample_leaves_no_trace(small_stages, monkeypatch):
    """Almost without a penalty, models of 300 rows say nothing about 2,400.

    On JAX alone: which rows a run works on is decided above `ops`.
    """
    task = given(dataclasses.replace(cleaning(2, 2400, 2400, 60, 3, 0.4), C=1e-7), "jax")
    _, seen = weights_per_row(task)
    monkeypatch.setattr(stages, "LARGE", 2**60)
    _, on_all_rows = weights_per_row(task)
    assert len(seen) == len(on_all_rows) + 1
    for a, b in zip(seen[1:], on_all_rows, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("large", [False, True])
def test_a_function_that_needs_all_rows_is_given_them(large, monkeypatch):
    """x has a weight for each row, and no number among the data says which row is which."""
    if large:
        monkeypatch.setattr(stages, "LARGE", 0)
        monkeypatch.setattr(stages, "FEWEST_ROWS", 40)
    count, counts = 1000, []
    X = np.random.default_rng(0).standard_normal((2 * count, 10))
    t = np.sign(X[:, 0] + 0.5)

    def losses(y, batch):
        counts.append(len(batch[1]))
        return jnp.logaddexp(0.0, -batch[1] * (batch[0] @ y))

    done = untuned.minimize(
        lambda x, y, batch: losses(y, batch).mean(),
        lambda x, y, batch: (jnp.exp(x) * losses(y, batch)).mean() + 0.01 * (y**2).sum(),
        np.zeros(count), np.zeros(10), outer_data=(X[count:], t[count:]),
        inner_data=(X[:count], t[:count]), max_steps=3,
    )  # fmt: skip
    assert done.steps == 3
    assert min(counts) < count  # some were tried
