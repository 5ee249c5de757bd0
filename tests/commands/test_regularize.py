"""`untuned regularize`: norms, groups, words, and matrices without a table."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from skops import io as skops

from untuned import estimators
from untuned.commands import saved_model
from untuned.tables import columns

NAMES = [f"g{k}" for k in range(20)]


@pytest.fixture
def table(tmp_path):
    """Two blocks of columns, of which two columns matter; and one that is left out."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(150, 20)), columns=NAMES)
    frame["flat"] = 0.0
    signal = 2 * frame["g0"] - frame["g1"] + 0.5 * random.normal(size=150)
    frame["relapse"] = np.where(signal > 0, "yes", "no")
    frame["score"] = signal
    frame.drop(columns="score").to_csv(tmp_path / "train.csv", index=False)
    frame.drop(columns="relapse").to_csv(tmp_path / "scores.csv", index=False)
    groups = {"column": NAMES, "group": ["genes"] * 2 + ["noise"] * 18}
    pd.DataFrame(groups).to_csv(tmp_path / "groups.csv", index=False)
    return frame


def loaded():
    return skops.load(Path("out", saved_model.FILE), trusted=saved_model.TRUSTED)


@pytest.fixture
def fitting(untuned, monkeypatch):
    """The command line with our estimators instead of their stand-ins."""
    for name in ("BilevelLogisticRegression", "BilevelRidge"):
        monkeypatch.delitem(vars(estimators), name)
    return untuned


def run(untuned, *arguments):
    code, out, err = untuned("regularize", *arguments, "--out", "out")
    assert (code, err) == (0, "")
    return out


@pytest.mark.long
@pytest.mark.parametrize("norm", ["l1", "elasticnet"])
@pytest.mark.parametrize("label", ["relapse", "score"])
def test_absolute_penalties_drop_columns(fitting, table, norm, label):
    train = "train.csv" if label == "relapse" else "scores.csv"
    run(fitting, train, "--label", label, "--norm", norm)
    coefficients = pd.read_csv("out/coefficients.csv").set_index("_feature").iloc[:, 0]
    assert 0 < (coefficients == 0).sum() <= 18
    assert (coefficients[["g0", "g1"]] != 0).all()
    found = json.loads(Path("out/result.json").read_text())
    assert found["settings"]["norm"] == norm
    assert found["summary"]["features_in_the_model"] == (coefficients != 0).sum()
    model, frame = loaded(), pd.read_csv(train)
    said = model.predict(frame)
    right = (
        (said == frame[label]).mean() if label == "relapse" else model.score(frame, frame[label])
    )
    assert right > 0.85


def test_a_search_in_closed_form_has_no_charts_of_gradients(fitting, table):
    run(fitting, "scores.csv", "--label", "score", "--penalty", "all")
    page = Path("out/report.html").read_text()
    assert "in closed form: the least of" in page
    assert "Gradient norms" not in page
    run(fitting, "scores.csv", "--label", "score", "--overwrite")
    assert "Gradient norms" in Path("out/report.html").read_text()


def test_groups_have_a_strength_each(untuned, table):
    run(untuned, "train.csv", "--label", "relapse", "--groups", "groups.csv")
    strengths = pd.read_csv("out/strengths.csv").set_index("group")
    assert set(strengths.index) == {"genes", "noise"}
    coefficients = pd.read_csv("out/coefficients.csv").set_index("_feature").iloc[:, 0].abs()
    assert strengths["largest_coefficient"]["genes"] == pytest.approx(coefficients["g0"])
    assert "Strength per group" in Path("out/report.html").read_text()


GROUPS = {
    "no such column": (
        "column,group\nG0,a\n",
        "in train.csv (row 1 of groups.csv) called 'G0'; the nearest",
    ),
    "column left out of the file": ("column,group\ng0,a\n", "no group for 19 of 20 columns"),
    "group without columns": ("column,group\ng0,a\n,empty\n", "'empty' without a column in row 2"),
    "column without a group": ("column,group\ng0,\n", "has no group in row 1"),
    "two groups": ("column,group\ng0,a\ng0,b\n", "puts the column 'g0' into the groups 'a' and"),
    "one column": ("column\ng0\n", "has 1 columns; expected a table of two columns"),
    "group of a flat column": (
        "column,group\n" + "".join(f"{name},a\n" for name in NAMES) + "flat,alone\n",
        "The group 'alone' of groups.csv has no column to learn from",
    ),
}


@pytest.mark.parametrize("case", GROUPS)
def test_bad_groups_are_one_sentence(untuned, table, tmp_path, case):
    text, words = GROUPS[case]
    (tmp_path / "groups.csv").write_text(text)
    refused(untuned, tmp_path, words, "train.csv", "--label", "relapse", "--groups", "groups.csv")


def refused(untuned, tmp_path, words, *arguments):
    before = sorted(tmp_path.rglob("*"))
    code, out, err = untuned("regularize", *arguments, "--out", "deep/out")
    assert (code, out) == (2, "")
    assert words in err
    assert err.startswith("untuned: ")
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture
def words(tmp_path):
    """Texts of two topics, told apart by one word each, and the same as a matrix of counts."""
    random = np.random.default_rng(0)
    rest = [f"word{k}" for k in range(30)]
    topics = np.where(np.arange(120) % 2, "sea", "sky")
    own = {"sea": "wave", "sky": "cloud"}
    texts = [
        " ".join([*random.choice(rest, 6), *([own[topic]] if random.random() < 0.9 else [])])
        for topic in topics
    ]
    pd.DataFrame({"text": texts, "topic": topics}).to_csv(tmp_path / "texts.csv", index=False)
    names = [*rest, "wave", "cloud", "never"]
    counts = np.array([[text.split().count(name) for name in names] for text in texts], float)
    counts[0] = 0
    return sparse.csr_array(counts), topics, names


@pytest.mark.long
def test_words_have_names_and_the_model_reads_texts(fitting, words):
    out = run(fitting, "texts.csv", "--label", "topic", "--penalty", "all", "--norm", "l1")
    assert "1 column of text ('text'): read as frequencies of words." in out
    coefficients = pd.read_csv("out/coefficients.csv").set_index("_feature").iloc[:, 0]
    assert coefficients.idxmin() == "text: wave"
    assert coefficients.idxmax() == "text: cloud"
    assert len(coefficients) == 32
    texts = pd.read_csv("texts.csv")
    assert (loaded().predict(texts) == texts["topic"]).mean() > 0.9


@pytest.mark.parametrize("label", ["inside", "csv", "npy"])
def test_a_sparse_matrix_with_its_labels(untuned, words, tmp_path, label):
    X, topics, _ = words
    beside = {"topic": topics} if label == "inside" else {}
    parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}
    np.savez(tmp_path / "words.npz", format=b"csr", **parts, **beside)
    pd.DataFrame({"any": topics}).to_csv(tmp_path / "topics.csv", index=False)
    np.save(tmp_path / "topics.npy", topics)
    said = {"inside": "topic", "csv": "topics.csv", "npy": "topics.npy"}[label]
    out = run(untuned, "words.npz", "--label", said, "--penalty", "all")
    assert "1 columns are zero in every row" in out
    assert "1 rows are zero in every column" in out
    model = loaded()
    assert model.n_features_in_ == X.shape[1]
    assert (model.predict(X) == topics).mean() > 0.9


def test_features_beside_a_table_and_groups_by_number(untuned, words, tmp_path):
    X, _, names = words
    sparse.save_npz(tmp_path / "words.npz", X)
    groups = pd.DataFrame(
        {
            "column": range(32),
            "group": ["own" if n in ("wave", "cloud") else "rest" for n in names[:32]],
        }
    )
    groups.to_csv(tmp_path / "groups.csv", index=False)
    arguments = ("texts.csv", "--label", "topic", "--features", "words.npz")
    run(untuned, *arguments, "--groups", "groups.csv")
    assert set(pd.read_csv("out/strengths.csv")["group"]) == {"own", "rest"}
    groups.loc[32] = [32, "gone"]
    groups.to_csv(tmp_path / "groups.csv", index=False)
    sentence = "The group 'gone' of groups.csv has no column to learn from, as '32' of words.npz"
    refused(untuned, tmp_path, sentence, *arguments, "--groups", "groups.csv")


MATRICES = {
    "no labels": (("words.npz", "--label", "topic"), "words.npz holds no array 'topic' and there"),
    "too few labels": (("words.npz", "--label", "few.npy"), "have the shape (3,); expected (120,)"),
    "a part of the matrix": (("words.npz", "--label", "indices"), "holds no array 'indices'"),
    "many columns": (("words.npz", "--label", "wide.csv"), "wide.csv has 2 columns; expected one"),
    "nothing": (("zero.npz", "--label", "topics.npy"), "zero.npz is zero in every row and column"),
    "labels of objects": (("words.npz", "--label", "objects.npy"), "and no Python objects"),
    "objects inside": (("both.npz", "--label", "y"), "The array 'y' of both.npz could not be"),
    "damaged labels": (("words.npz", "--label", "cut.npy"), "cut.npy could not be read ("),
    "an archive": (("words.npz", "--label", "zip.npy"), "zip.npy could not be read (the magic"),
    "two matrices": (
        ("words.npz", "--label", "topics.npy", "--features", "zero.npz"),
        "words.npz is a matrix and so is --features",
    ),
    "two ways to share": (
        ("texts.csv", "--label", "topic", "--groups", "g.csv", "--penalty", "all"),
        "and so does --penalty all; give one of them",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", MATRICES)
def test_bad_matrices_are_one_sentence(untuned, words, tmp_path, case):
    X, topics, _ = words
    sparse.save_npz(tmp_path / "words.npz", X)
    sparse.save_npz(tmp_path / "zero.npz", sparse.csr_array(X.shape))
    np.save(tmp_path / "topics.npy", topics)
    np.save(tmp_path / "few.npy", topics[:3])
    np.save(tmp_path / "objects.npy", topics.astype(object))
    np.savez(tmp_path / "both.npz", X=X.toarray(), y=topics.astype(object))
    shutil.copy(tmp_path / "both.npz", tmp_path / "zip.npy")
    (tmp_path / "cut.npy").write_bytes((tmp_path / "topics.npy").read_bytes()[:-9])
    pd.DataFrame({"a": topics, "b": topics}).to_csv(tmp_path / "wide.csv", index=False)
    arguments, said = MATRICES[case]
    refused(untuned, tmp_path, said, *arguments)


def test_columns_that_are_mostly_zero_stay_sparse(untuned, tmp_path, monkeypatch):
    monkeypatch.setattr(columns, "FEW_NUMBERS", 1000)
    random = np.random.default_rng(0)
    X = np.where(random.random((200, 30)) < 0.05, random.exponential(size=(200, 30)), 0)
    X[:, 0] = random.random(200) < 0.1
    frame = pd.DataFrame(X, columns=[f"c{k}" for k in range(30)])
    frame["dense"] = random.normal(size=200)
    frame["y"] = np.where(
        (3 * X[:, 0] + 2 * frame["dense"] + random.normal(size=200)) > 0, "a", "b"
    )
    frame.to_parquet(tmp_path / "sparse.parquet")
    out = run(untuned, "sparse.parquet", "--label", "y", "--penalty", "all")
    assert "columns of mostly zero" in out
    found = json.loads(Path("out/result.json").read_text())
    assert {each["name"]: each["kind"] for each in found["columns"]}["c0"] == "mostly zero"
    # The model takes the raw table, and says what the fit said.
    table = pd.read_parquet("sparse.parquet")
    assert (loaded().predict(table) == table["y"]).mean() > 0.75
    features = pd.read_parquet("out/coefficients.parquet")["_feature"]
    assert sorted(features) == sorted(frame.columns[:-1])


def test_the_page_shows_the_path(untuned, table):
    run(untuned, "train.csv", "--label", "relapse")
    page = Path("out/report.html").read_text()
    for title in ("The path", "Loss of rows held back", "Strengths as they were found"):
        assert title in page
    assert "strength at which a feature enters" in page
    path = pd.read_csv("out/path.csv")
    assert path.columns.tolist() == ["strength", "loss", "standard_error"]
    entered = pd.read_csv("out/entered.csv")
    assert entered["feature"].tolist() == NAMES
    assert entered["strength"].tolist() == [8, 4, 2, *[1] * 17]
    lines = pd.read_csv("out/lines.csv")
    assert lines[lines["feature"] == "g1"]["coefficient"].tolist() == [0, 1, 1, 1]
    search = pd.read_csv("out/search.csv")
    assert search[search["feature"] == "g0"]["strength"].tolist() == [1, 0.25]
