"""`untuned clean`, `regularize`, `coreset` and `report`: what they write, and what they refuse."""

import io
import json
import os
import resource
import shutil
import sys
import zipfile
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes
from skops import io as skops

from untuned.commands import saved_model
from untuned.util import lock

TABLE = ("train.csv", "--label", "diagnosis", "--out", "out")


@pytest.fixture
def table(tmp_path):
    """A table with numbers, categories, holes, a constant column and rows without a label."""
    frame = load_breast_cancer(as_frame=True).data.iloc[:150, :6]
    frame["site"] = np.where(np.arange(150) % 3, "left", "right")
    frame.loc[4:8, "mean area"] = np.nan
    frame["country"] = "NO"
    malignant = load_breast_cancer().target[:150] == 0
    frame["diagnosis"] = np.where(malignant, "malignant", "benign")
    frame.loc[[10, 20], "diagnosis"] = None
    frame.to_csv(tmp_path / "train.csv", index=False)
    frame.to_parquet(tmp_path / "train.parquet")
    return frame


def result_of(folder):
    return json.loads(Path(folder, "result.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_clean_writes_what_it_says(untuned, table, kind):
    code, out, err = untuned("clean", f"train.{kind}", "--label", "diagnosis", "--out", "out")
    assert (code, err) == (0, "")
    assert {path.name for path in Path("out").iterdir()} == {
        f"rows.{kind}", f"suspects.{kind}", f"cleaned.{kind}", f"history.{kind}",
        f"evidence.{kind}",
        "result.json", "model.skops", "report.html",
    }  # fmt: skip
    read = pd.read_csv if kind == "csv" else pd.read_parquet
    labelled = table.dropna(subset="diagnosis")
    rows = read(f"out/rows.{kind}")
    assert rows["row"].tolist() == labelled.index.tolist()  # 10 and 20 have no label
    assert rows["given_label"].tolist() == labelled["diagnosis"].tolist()
    suspects = read(f"out/suspects.{kind}")
    assert suspects["_quality"].is_monotonic_increasing
    assert suspects["_row"].tolist() == rows.loc[rows["suspect"], "row"].tolist()[::-1]
    worst = table.loc[suspects["_row"].iloc[0]]
    assert suspects["mean radius"].iloc[0] == worst["mean radius"]
    assert suspects["country"].iloc[0] == "NO"  # left out of the model, not of the table
    cleaned = read(f"out/cleaned.{kind}")
    assert list(cleaned.columns) == list(table.columns)
    assert len(suspects) == 22
    # Also the two that nobody can judge, as they have no label.
    pd.testing.assert_frame_equal(
        cleaned, read(f"train.{kind}").drop(index=suspects["_row"]).reset_index(drop=True)
    )
    assert f"out/cleaned.{kind} (it keeps the 2 without a label)" in out

    assert "22 of 148 labels look wrong (14.9%)" in out
    assert "2 rows without a label are left out of the model." in out
    assert "Left out, the same in every row: 'country'." in out
    assert "5 missing values in 'mean area'" in out
    assert "1 column of categories ('site')" in out
    result = result_of("out")
    assert result["summary"]["suspect_labels"] == 22
    assert result["input"]["rows"] == 150
    assert result["command_line"].startswith(f"untuned clean train.{kind} --label diagnosis")
    assert result["settings"] == {
        "method": "auto", "seed": 0, "max_seconds": None, "trusted": None, "features": None,
        "probabilities": None, "decisions": None, "task": "classes", "disputed": False,
    }  # fmt: skip
    kinds = {column["name"]: column["kind"] for column in result["columns"]}
    assert kinds["country"] == "left out"
    assert kinds["site"] == "categories"


def test_saved_model_predicts_on_the_raw_table_and_holds_no_code(untuned, table):
    untuned("clean", *TABLE)
    path = Path("out", saved_model.FILE)
    assert set(skops.get_untrusted_types(file=path)) <= set(saved_model.TRUSTED)
    model = skops.load(path, trusted=saved_model.TRUSTED)
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    assert all(name == "schema.json" or name.endswith((".npy", ".npz")) for name in names)
    raw = pd.read_csv("train.csv")
    labelled = raw["diagnosis"].notna()
    accuracy = (model.predict(raw[labelled]) == raw["diagnosis"][labelled]).mean()
    assert accuracy > 0.85
    # scikit-learn's own classes only: the model outlives us.
    schema = zipfile.ZipFile(path).read("schema.json").decode()
    assert '"untuned' not in schema


@pytest.mark.parametrize("classes", [2, 3])
def test_plain_model_has_the_probabilities_of_its_coefficients(classes):
    rng = np.random.default_rng(classes)
    rows = 1 if classes == 2 else classes
    coef, intercept = rng.standard_normal((rows, 4)), rng.standard_normal(rows)
    model = saved_model.classifier(coef, intercept, np.array(["a", "b", "c"][:classes], object))
    X = rng.standard_normal((5, 4))
    scores = X @ coef.T + intercept
    if classes == 2:
        scores = np.hstack([np.zeros((5, 1)), scores])
    expected = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(X), expected)
    assert model.predict(X).tolist() == [model.classes_[place] for place in expected.argmax(1)]


def test_regularize_orders_strengths_by_column(untuned, table):
    code, out, _ = untuned("regularize", *TABLE)
    assert code == 0
    strengths = pd.read_csv("out/strengths.csv")
    used = [*table.columns[:6], "site"]  # one strength for both columns of 0 and 1
    assert strengths["feature"].tolist() == used
    assert strengths["strength"].tolist() == [0.25 * 2**power for power in range(7)]
    coefficients = pd.read_csv("out/coefficients.csv")
    assert coefficients["_feature"].tolist() == [*used[:6], "site = left", "site = right"]
    of_site = coefficients["malignant"].iloc[6:].abs().max()
    assert strengths["largest_coefficient"].iloc[6] == pytest.approx(of_site)
    assert "7 penalty strengths from 0.25 to 16 were chosen on rows held back" in out


NAMES = {"class": ["benign", "malignant"], "all": ["all"]}


@pytest.mark.parametrize("penalty", NAMES)
def test_other_penalties(untuned, table, penalty):
    code, _, _ = untuned("regularize", *TABLE, "--penalty", penalty)
    assert code == 0
    assert pd.read_csv("out/strengths.csv")[penalty].tolist() == NAMES[penalty]


def test_regularize_of_numbers(untuned, tmp_path):
    frame = load_diabetes(as_frame=True).frame
    frame.to_parquet(tmp_path / "diabetes.parquet")
    code, out, _ = untuned("regularize", "diabetes.parquet", "--label", "target", "--out", "out")
    assert code == 0
    assert "A model of numbers in 'target' from 442 rows" in out
    model = skops.load("out/model.skops", trusted=saved_model.TRUSTED)
    residual = frame["target"] - model.predict(frame)
    assert residual.var() < 0.55 * frame["target"].var()


def test_coreset_keeps_rows_with_weights(untuned, table):
    code, out, _ = untuned("coreset", *TABLE, "--size", 20)
    assert code == 0
    kept = pd.read_csv("out/kept.csv")
    assert len(kept) == 20
    assert kept["_weight"].is_monotonic_decreasing
    again = table.loc[kept["_row"], "mean radius"]
    np.testing.assert_allclose(kept["mean radius"], again)
    summary = result_of("out")["summary"]
    assert summary["kept_per_class"] == {"benign": 10, "malignant": 10}
    assert 0.5 < summary["accuracy_on_other_rows"] <= 1
    assert "Kept 20 of 148 rows (benign: 10, malignant: 10)." in out


def test_all_rows_may_be_kept(untuned, table):
    code, _, err = untuned("coreset", *TABLE, "--size", 148)
    assert (code, err) == (0, "")
    assert result_of("out")["summary"]["accuracy_on_other_rows"] is None


def test_trusted_rows_are_used(untuned, table, tmp_path):
    trusted = table.dropna(subset="diagnosis").iloc[:40].drop(columns="country")
    trusted[trusted.columns[::-1]].to_csv(tmp_path / "trusted.csv", index=False)  # any order
    code, out, _ = untuned("clean", *TABLE, "--trusted", "trusted.csv")
    assert code == 0
    assert "judged against 40 trusted rows" in out
    assert result_of("out")["settings"]["trusted"] == "trusted.csv"


@pytest.mark.parametrize("site", [np.nan, 3])
def test_trusted_categories_may_be_missing_or_numbers(untuned, table, tmp_path, site):
    """Of which no row was seen in training: scikit-learn's encoder fails on their type."""
    trusted = table.dropna(subset="diagnosis").iloc[:40].assign(site=site)
    trusted.to_csv(tmp_path / "trusted.csv", index=False)
    code, out, err = untuned("clean", *TABLE, "--trusted", "trusted.csv")
    assert (code, err) == (0, "")
    assert "judged against 40 trusted rows" in out


def test_names_that_are_not_unicode_are_refused_before_the_work(untuned, table, tmp_path):
    name = os.fsdecode(b"caf\xe9.csv")
    shutil.copy(tmp_path / "train.csv", tmp_path / name)
    code, _, err = untuned("clean", name, "--label", "diagnosis", "--out", "out")
    assert code == 2
    assert "holds letters that are not UTF-8" in err
    assert not (tmp_path / "out").exists()


def test_letters_that_the_terminal_does_not_know(untuned, table, tmp_path, monkeypatch):
    """The work is done by then, and must not end as an error."""
    table.rename(columns={"site": "Łódź"}).to_csv(tmp_path / "train.csv", index=False)
    shown = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", shown)
    code, _, err = untuned("coreset", *TABLE, "--size", 20)
    shown.flush()
    assert (code, err) == (0, "")
    assert r"('\u0141ód\u017a')".encode("latin-1") in shown.buffer.getvalue()


def test_report_is_written_again_and_elsewhere(untuned, table):
    untuned("clean", *TABLE)
    Path("out/report.html").unlink()
    code, out, _ = untuned("report", "out")
    assert (code, out) == (0, "Report: out/report.html\n")
    assert Path("out/report.html").exists()
    for _ in range(2):  # a new folder, and one that is there
        assert untuned("report", "out", "--out", "more/pages")[0] == 0
        assert Path("more/pages/report.html").exists()
    code, _, err = untuned("report", "out", "--out", "out/rows.csv")
    assert code == 2
    assert err.startswith(
        "untuned: --out out/rows.csv cannot be written (out/rows.csv is a file); "
    )


def test_our_columns_give_way_to_the_users(untuned, table):
    """The table of suspects can itself be cleaned."""
    untuned("coreset", *TABLE, "--size", 60)
    code, _, err = untuned("clean", "out/kept.csv", "--label", "diagnosis", "--out", "again")
    assert (code, err) == (0, "")
    suspects = pd.read_csv("again/suspects.csv")
    assert {"_row", "_weight", "__row", "__weight"} <= set(suspects.columns)


BAD = {
    "no such file": (("clean", "nothing.csv", "--label", "y"), "There is no file nothing.csv"),
    "no such column": (
        ("clean", "train.csv", "--label", "diagnosi"),
        "nearest name is 'diagnosis'",
    ),
    "one class": (("clean", "train.csv", "--label", "country"), "only one value, 'NO'"),
    "labels missing": (("coreset", "holes.csv", "--label", "y", "--size", 2), "are missing"),
    "numbers as classes": (("clean", "train.csv", "--label", "mean area"), "expected classes"),
    "size too large": (
        ("coreset", "train.csv", "--label", "diagnosis", "--size", 149),
        "--size 149 is above the 148 labelled rows",
    ),
    "size too small": (
        ("coreset", "train.csv", "--label", "diagnosis", "--size", 1),
        "--size 1 is below the 2 classes",
    ),
    "size of nothing": (("coreset", "train.csv", "--label", "diagnosis", "--size", 0), "--size"),
    "infinite": (("clean", "infinite.csv", "--label", "y"), "Column 'a' of infinite.csv has inf"),
    "nothing but labels": (("clean", "alone.csv", "--label", "y"), "no column besides the label"),
    "constant columns": (("clean", "constant.csv", "--label", "y"), "no column to learn from"),
    "duplicate columns": (("clean", "twice.csv", "--label", "y"), "more than one column named 'a'"),
    "trusted without a column": (
        ("clean", "train.csv", "--label", "diagnosis", "--trusted", "narrow.csv"),
        "narrow.csv has no column 'mean radius', which train.csv has",
    ),
    "trusted with text": (
        ("clean", "train.csv", "--label", "diagnosis", "--trusted", "text.csv"),
        "Column 'mean radius' holds numbers in train.csv and something else in text.csv",
    ),
    "trusted with an unknown class": (
        ("clean", "train.csv", "--label", "diagnosis", "--trusted", "strange.csv"),
        "strange.csv has the class 'unsure', which train.csv does not have",
    ),
    "trusted in other units": (
        ("clean", "train.csv", "--label", "diagnosis", "--trusted", "huge.csv"),
        "has 1e+30 in row 3 (counted from 0), more than 1e+09 times its spread in",
    ),
    "few trusted rows": (
        ("clean", "train.csv", "--label", "diagnosis", "--trusted", "few.csv"),
        "few.csv has 1 labelled rows, fewer than the 2 classes",
    ),
    "no such method": (
        ("clean", "train.csv", "--label", "diagnosis", "--method", "atuo"),
        "nearest name is 'auto'",
    ),
    "no time": (
        ("clean", "train.csv", "--label", "diagnosis", "--max-seconds", "-1"),
        "--max-seconds -1 is not usable",
    ),
    "no such seed": (
        ("clean", "train.csv", "--label", "diagnosis", "--seed", 2**32),
        "Invalid value for '--seed'",
    ),
    "no label option": (("clean", "train.csv"), "Missing option '--label'"),
    "no such option": (("clean", "train.csv", "--lable", "diagnosis"), "No such option: --lable"),
    "no such penalty": (
        ("regularize", "train.csv", "--label", "diagnosis", "--penalty", "row"),
        "'row' is not one of",
    ),
    "classes of numbers": (
        ("regularize", "train.csv", "--label", "mean area", "--penalty", "class"),
        "--penalty class needs classes",
    ),
    "report of nothing": (("report", "."), "There is no result.json"),
}


@pytest.mark.long
@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_and_leaves_nothing(case, untuned, table, tmp_path):
    two = {"a": [1.0, 2, 3, 4], "y": [0, 1, 0, 1]}
    pd.DataFrame(two | {"y": np.nan}).to_csv(tmp_path / "holes.csv", index=False)
    pd.DataFrame(two | {"a": [1, np.inf, 2, 3]}).to_csv(tmp_path / "infinite.csv", index=False)
    pd.DataFrame({"y": [0, 1, 0, 1]}).to_csv(tmp_path / "alone.csv", index=False)
    pd.DataFrame(two | {"a": 1}).to_csv(tmp_path / "constant.csv", index=False)
    (tmp_path / "twice.csv").write_text("a,a,y\n1,2,0\n3,4,1\n")
    rows = table.iloc[:9]
    rows.drop(columns="mean radius").to_csv(tmp_path / "narrow.csv", index=False)
    rows.assign(**{"mean radius": "big"}).to_csv(tmp_path / "text.csv", index=False)
    rows.assign(diagnosis="unsure").to_csv(tmp_path / "strange.csv", index=False)
    far = rows["mean radius"].where(np.arange(9) != 3, 1e30)
    rows.assign(**{"mean radius": far}).to_csv(tmp_path / "huge.csv", index=False)
    rows.iloc[:1].to_csv(tmp_path / "few.csv", index=False)
    before = sorted(tmp_path.rglob("*"))
    arguments, words = BAD[case]
    out = ("--out", "deep/out") if arguments[0] != "report" else ()
    code, printed, err = untuned(*arguments, *out)
    assert code == 2
    assert words in err
    assert err.startswith("untuned: ")
    assert err.count("\n") == 1
    assert printed == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_existing_folder_asks_for_overwrite(untuned, table, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    command = ("clean", "train.csv", "--label", "diagnosis", "--out", "out")
    code, _, err = untuned(*command)
    assert code == 2
    assert "--overwrite" in err
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"
    code, _, err = untuned(*command, "--overwrite")
    assert code == 2
    assert "--out out holds mine.txt, which untuned did not write" in err
    (tmp_path / "out" / "mine.txt").unlink()
    for _ in range(2):
        assert untuned(*command, "--overwrite")[0] == 0
    (tmp_path / "out" / "mine.txt").write_text("mine")
    assert untuned(*command, "--overwrite")[0] == 2
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("command", ["clean", "regularize", "coreset"])
def test_overwriting_never_takes_the_table_along(untuned, table, tmp_path, command):
    (tmp_path / "data").mkdir()
    (tmp_path / "train.csv").rename(tmp_path / "data" / "train.csv")
    options = ["data/train.csv", "--label", "diagnosis", "--out", "data", "--overwrite"]
    code, _, err = untuned(command, *options, *(["--size", 20] if command == "coreset" else []))
    assert code == 2
    assert "data/train.csv is in --out data, which is replaced as a whole" in err
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["train.csv"]


@contextmanager
def files_of_at_most(size):
    """Files cannot be longer inside, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_full_disk_is_one_sentence_and_leaves_nothing(untuned, table, tmp_path):
    """Files of at most 20 kB: the page, with its script inside, cannot be written whole."""
    with files_of_at_most(20_000):
        code, _, err = untuned("clean", "train.csv", "--label", "diagnosis", "--out", "deep/out")
    assert code == 2
    assert "is full; nothing was written" in err
    assert err.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"train.csv", "train.parquet"}


@pytest.mark.long
@pytest.mark.parametrize("command", ["clean", "regularize", "coreset"])
@pytest.mark.parametrize("size", [0, 1_000, 3_000, 20_000])
def test_disk_may_be_full_at_any_file(untuned, table, tmp_path, command, size):
    """The model, the tables, result.json or the page; what was there before stays."""
    options = ["train.csv", "--label", "diagnosis", "--out", "out", "--overwrite"]
    options += ["--size", 20] if command == "coreset" else []
    assert untuned(command, *options)[0] == 0
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    with files_of_at_most(size):
        code, _, err = untuned(command, *options)
    assert code == 2
    assert "is full; nothing was written" in err
    assert {path.name for path in tmp_path.iterdir()} == {"train.csv", "train.parquet", "out"}
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    code, _, _ = untuned(command, *options)  # now there is room
    assert code == 0


def test_a_page_that_does_not_fit_leaves_the_old_one(untuned, table, tmp_path):
    untuned("regularize", *TABLE)
    before = (tmp_path / "out" / "report.html").read_bytes()
    with files_of_at_most(1_000_000):
        code, _, err = untuned("report", "out")
    assert (code, err) == (2, "untuned: The disk is full; make room, or write to another disk.\n")
    assert (tmp_path / "out" / "report.html").read_bytes() == before
    assert not list((tmp_path / "out").glob("*untuned-*"))


def test_two_commands_with_one_folder(untuned, table, tmp_path):
    with lock.held(tmp_path / "out", "held here"):
        code, _, err = untuned("clean", *TABLE)
    assert code == 2
    assert "Another command is writing to --out" in err
    assert {path.name for path in tmp_path.iterdir()} == {"train.csv", "train.parquet"}


@pytest.mark.parametrize("command", ["clean", "regularize", "coreset", "report"])
def test_help_shows_an_example(command, untuned):
    code, out, _ = untuned(command, "--help")
    assert code == 0
    assert f"untuned {command} " in out.replace("Usage: untuned", "")
