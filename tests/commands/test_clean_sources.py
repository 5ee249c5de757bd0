"""`untuned clean` on texts, images, embeddings, probabilities, numbers and decisions."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy import sparse
from sklearn.datasets import load_iris
from skops import io as skops

from refusals import assert_one_sentence
from untuned import estimators
from untuned.commands import saved_model
from untuned.tables import decisions

ROWS = 90


@pytest.fixture
def flowers(tmp_path):
    """Some of iris, with a sentence for each row, a kind in turn, and one row without a label."""
    frame = load_iris(as_frame=True).data.iloc[:ROWS]
    frame["kind"] = np.array(["setosa", "versicolor", "virginica"])[np.arange(ROWS) % 3]
    frame["note"] = [f"petal number {row} was seen by a person" for row in range(ROWS)]
    frame.loc[10, "kind"] = None
    frame.to_csv(tmp_path / "flowers.csv", index=False)
    frame.to_parquet(tmp_path / "flowers.parquet")
    return frame


@pytest.fixture
def photos(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("cats", "dogs"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(12):
            pixels = rng.integers(0, 255, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    return tmp_path / "photos"


def done(untuned, *arguments, out="out"):
    """What `untuned clean` prints where it ends well and says nothing on standard error."""
    code, out, err = untuned("clean", *arguments, "--out", out)
    assert (code, err) == (0, "")
    return out


def result():
    return json.loads(Path("out/result.json").read_text(encoding="utf-8"))


@pytest.mark.long
def test_a_table_of_texts_only(untuned, flowers, tmp_path):
    flowers[["note", "kind"]].to_csv(tmp_path / "notes.csv", index=False)
    out = done(untuned, "notes.csv", "--label", "kind")
    assert "1 column of text ('note'): read as frequencies of words" in out
    raw = pd.read_csv("notes.csv")
    model = skops.load("out/model.skops", trusted=saved_model.TRUSTED)
    assert set(model.predict(raw)) <= {"setosa", "versicolor", "virginica"}
    evidence = pd.read_csv("out/evidence.csv")
    suspects = pd.read_csv("out/suspects.csv")
    assert set(evidence["row"]) <= set(suspects["_row"])
    assert set(evidence["column"]) == {"note"}
    assert evidence["share"].between(0, 1).all()
    assert evidence.groupby("row")["share"].sum().max() <= 1.005
    for row, word in zip(evidence["row"], evidence["value"], strict=True):
        assert str(word) in raw["note"][row]


@pytest.mark.long
def test_columns_that_speak_against_a_label_are_the_models_own(untuned, flowers):
    untuned("clean", "flowers.csv", "--label", "kind", "--out", "out")
    model = skops.load("out/model.skops", trusted=saved_model.TRUSTED)
    evidence, suspects = pd.read_csv("out/evidence.csv"), pd.read_csv("out/suspects.csv")
    numbers = evidence[evidence["column"] == "petal length (cm)"]
    line = numbers.iloc[0]
    row = suspects[suspects["_row"] == line["row"]].iloc[0]
    assert float(line["value"]) == row["petal length (cm)"]
    names = list(model[0].transformers_[0][2])
    place = names.index("petal length (cm)")
    classes = model[1].classes_.tolist()
    given, other = (classes.index(row[name]) for name in ("_given_label", "_suggested_label"))
    raw = pd.read_csv("flowers.csv").dropna(subset="kind")
    value = (row["petal length (cm)"] - raw["petal length (cm)"].mean()) / raw[
        "petal length (cm)"
    ].std(ddof=0)
    assert (model[1].coef_[other, place] - model[1].coef_[given, place]) * value > 0


@pytest.mark.parametrize("form", ["dense.npy", "dense.npz", "sparse.npz"])
def test_features_come_row_by_row(untuned, flowers, form):
    X = np.random.default_rng(0).standard_normal((ROWS, 7))
    if form == "sparse.npz":
        sparse.save_npz(form, sparse.csr_matrix(X))
    elif form == "dense.npz":
        np.savez(form, embeddings=X)
    else:
        np.save(form, X.astype(np.float16))
    out = done(untuned, "flowers.parquet", "--label", "kind", "--features", form)
    assert f"7 features of each row come from {form}." in out
    assert result()["input"]["rows_used"] == ROWS - 1
    model = skops.load("out/model.skops", trusted=saved_model.TRUSTED)
    assert model.predict(X).shape == (ROWS,)
    assert "note" in pd.read_parquet("out/suspects.parquet").columns  # shown, not learned from


@pytest.mark.long
@pytest.mark.parametrize("form", ["p.npy", "p.csv", "p.parquet"])
def test_probabilities_are_handed_over_in_the_order_of_classes(untuned, flowers, form, monkeypatch):
    from untuned import estimators

    handed = {}
    fit = vars(estimators)["LabelCleaner"].fit

    def spy(self, X, y, X_trusted=None, y_trusted=None, pred_probs=None):
        handed["P"] = pred_probs
        return fit(self, X, y)

    monkeypatch.setattr(vars(estimators)["LabelCleaner"], "fit", spy)
    P = np.random.default_rng(0).dirichlet(np.ones(3), ROWS)
    frame = pd.DataFrame(P, columns=["setosa", "versicolor", "virginica"])
    if form == "p.npy":
        np.save(form, P)
    elif form == "p.csv":
        frame[["virginica", "setosa", "versicolor"]].to_csv(form, index=False)
    else:
        frame[["versicolor", "setosa", "virginica"]].to_parquet(form)
    done(untuned, "flowers.csv", "--label", "kind", "--probabilities", form)
    np.testing.assert_allclose(handed["P"], np.delete(P, 10, axis=0), atol=1e-12)


@pytest.mark.long
def test_numbers(untuned, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((120, 2)), columns=["a", "b"])
    frame["price"] = 5 * frame["a"] + 0.1 * rng.standard_normal(120)
    frame.loc[17, "price"] = 60.0
    frame.to_csv(tmp_path / "prices.csv", index=False)
    done(untuned, "prices.csv", "--label", "price", "--task", "numbers")
    suspects = pd.read_csv("out/suspects.csv")
    assert suspects["_row"].iloc[0] == 17
    assert suspects["_suggested_label"].iloc[0] == pytest.approx(5 * frame["a"][17], abs=3)
    assert 0.05 < suspects["_spread"].iloc[0] < 3
    assert pd.read_csv("out/cleaned.csv")["price"].max() < 50
    model = skops.load("out/model.skops", trusted=saved_model.TRUSTED)
    assert np.abs(model.predict(frame) - 5 * frame["a"]).mean() < 0.5


@pytest.mark.long
def test_images_in_folders(untuned, photos):
    (photos / "cats" / "0.png").write_bytes(b"\x89PNG broken")
    out = done(untuned, "photos")
    assert "1 image that cannot be read is left out: cats/0.png" in out
    assert "of 23 labels look wrong" in out
    suspects = pd.read_csv("out/suspects.csv")
    assert set(suspects["class"]) <= {"cats", "dogs"}
    page = Path("out/report.html").read_text()
    assert page.count("data:image/png;base64,") >= len(suspects)
    assert {"model.skops", "dictionary.npz"} <= {path.name for path in Path("out").iterdir()}
    # The same images as trusted ones.
    code, out, _ = untuned("clean", "photos", "--trusted", "photos", "--out", "again")
    assert code == 0
    assert "judged against 23 trusted rows" in out


@pytest.mark.long
def test_names_of_classes_stay_as_folders_are_called(untuned, photos):
    """In a CSV file 001 would be the number 1, and None would be missing."""
    (photos / "cats").rename(photos / "001")
    (photos / "dogs").rename(photos / "None")
    out = done(untuned, "photos")
    page = Path("out/report.html").read_text(encoding="utf-8")
    data = json.loads(page.partition('id="suspects">')[2].partition("</script>")[0])
    assert data["classes"] == ["001", "None"]
    assert set(data["given"]) == set(data["suggested"]) == {"001", "None"}
    assert '<th scope="row">001</th>' in page
    told = pd.DataFrame({name: data[name] for name in ("row", "digest", "given")})
    told.assign(decision="change", label=data["suggested"]).to_csv("told.csv", index=False)
    out = done(untuned, "photos", "--decisions", "told.csv", out="again")
    assert f"{len(told)} corrected" in out


def decided(frame, rows, kinds, labels):
    given = frame["kind"].iloc[rows]
    return pd.DataFrame(
        {
            "row": rows,
            "digest": decisions.digests(frame.iloc[rows]),
            "given": given.tolist(),
            "decision": kinds,
            "label": labels,
        }
    )


@pytest.mark.long
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_decided_rows_are_corrected_and_not_asked_again(untuned, flowers, kind):
    table = pd.read_csv("flowers.csv") if kind == "csv" else flowers
    told = decided(
        table, [0, 7, 14, 88], ["keep", "change", "unclear", "change"],
        ["setosa", "virginica", "", "setosa"],
    )  # fmt: skip
    told.to_csv("decisions.csv", index=False)
    out = done(untuned, f"flowers.{kind}", "--label", "kind", "--decisions", "decisions.csv")
    assert "Labels decided before: 1 confirmed, 2 corrected, 1 found unclear." in out
    assert "judged against 3 trusted rows" in out
    read = pd.read_csv if kind == "csv" else pd.read_parquet
    suspects, cleaned = read(f"out/suspects.{kind}"), read(f"out/cleaned.{kind}")
    assert not {0, 7, 14, 88} & set(suspects["_row"])
    now = dict(zip(cleaned["note"], cleaned["kind"], strict=True))
    assert now[table["note"][0]] == table["kind"][0]
    assert now[table["note"][7]] == "virginica"
    assert now[table["note"][14]] == table["kind"][14]  # as it was
    assert now[table["note"][88]] == "setosa"
    assert list(cleaned.columns) == list(table.columns)
    rows = read(f"out/rows.{kind}").set_index("row")
    assert rows.loc[[0, 7, 88], "quality"].tolist() == [1, 1, 1]
    assert rows.loc[7, "suggested_label"] == "virginica"
    assert not rows.loc[[0, 7, 14, 88], "disputed"].any()  # people have settled these
    assert rows.loc[rows["suspect"], "disputed"].any()


def test_disputed_labels_come_after_the_suspects(untuned, flowers):
    """Every seventh row of the stand-in is a suspect, every eleventh disputed; one is decided."""
    disputed = np.delete(np.arange(ROWS), 10)[::11]  # row 10 has no label
    settled = disputed[1]
    decided(pd.read_csv("flowers.csv"), [settled], ["unclear"], [""]).to_csv("one.csv", index=False)

    def shown(*more):
        code, out, err = untuned(*CLEAN, *more, "--out", "out", "--overwrite")
        assert (code, err) == (0, "")
        assert ("Beyond the suspects" in out) == ("--disputed" not in more)
        suspects = pd.read_csv("out/suspects.csv")
        assert (suspects["_given_label"] != suspects["_suggested_label"]).all()
        return suspects["_row"].tolist()

    usual, every = shown(), shown("--disputed")
    assert every[: len(usual)] == usual
    assert set(every) == {*usual, *disputed}
    assert len(every) == len(set(every))
    left = shown("--disputed", "--decisions", "one.csv")
    assert set(disputed) - set(left) == {settled}


def test_one_decision_is_enough(untuned, flowers):
    """Too few to be a trusted set of their own: they count where they stand."""
    decided(pd.read_csv("flowers.csv"), [7], ["change"], ["setosa"]).to_csv(
        "decisions.csv", index=False
    )
    done(untuned, "flowers.csv", "--label", "kind", "--decisions", "decisions.csv")
    assert pd.read_csv("out/rows.csv").set_index("row").loc[7, "quality"] == 1


CLEAN = ("clean", "flowers.csv", "--label", "kind")
BAD = {
    "empty text": (("clean", "empty.csv", "--label", "kind"), "no column to learn from"),
    "no subfolders": (("clean", "photos/cats"), "has no folders in it"),
    "one class": (("clean", "single"), "has one class only"),
    "no images": (("clean", "papers"), "is no image by its name"),
    "images of nothing": (("clean", "fakes"), "has no image that can be read"),
    "decisions of another table": ((*CLEAN, "--decisions", "other.csv"), "of another table than"),
    "decisions of rows beyond": ((*CLEAN, "--decisions", "beyond.csv"), "of another table than"),
    "decisions for a new class": ((*CLEAN, "--decisions", "rose.csv"), "has the label 'rose'"),
    "decisions unheard of": ((*CLEAN, "--decisions", "maybe.csv"), "has the decision 'maybe'"),
    "no decisions": ((*CLEAN, "--decisions", "flowers.csv"), "has no column 'row'"),
    "features of too few rows": (
        (*CLEAN, "--features", "short.npy"),
        "short.npy has 5 rows; expected 90",
    ),
    "features that are none": ((*CLEAN, "--features", "flat.npy"), "of shape (90,)"),
    "features with holes": ((*CLEAN, "--features", "holes.npy"), "not finite"),
    "features of text": ((*CLEAN, "--features", "flowers.csv"), "could not be read"),
    "two arrays": ((*CLEAN, "--features", "two.npz"), "holds 2 arrays"),
    "no features": ((*CLEAN, "--features", "nothing.npy"), "There is no file nothing.npy"),
    "features and trusted": (
        (*CLEAN, "--features", "short.npy", "--trusted", "flowers.csv"),
        "says nothing of the rows of --trusted",
    ),
    "probabilities of two": ((*CLEAN, "--probabilities", "pair.npy"), "has 2 columns; expected 3"),
    "probabilities of more": ((*CLEAN, "--probabilities", "large.npy"), "that add up to 1"),
    "probabilities of others": ((*CLEAN, "--probabilities", "names.csv"), "one for each class"),
    "probabilities of numbers": (
        (*CLEAN, "--probabilities", "pair.npy", "--task", "numbers"),
        "leave out --task numbers",
    ),
    "numbers of text": ((*CLEAN, "--task", "numbers"), "holds text such as"),
    "disputed numbers": ((*CLEAN, "--disputed", "--task", "numbers"), "leave it out, or --task"),
    "numbers of images": (("clean", "photos", "--task", "numbers"), "leave out --task numbers"),
    "no label": (("clean", "flowers.csv"), "Missing option '--label'"),
}


@pytest.fixture
def spoilt(flowers, photos, tmp_path):
    table = pd.read_csv(tmp_path / "flowers.csv")
    table[["kind"]].assign(text=None).to_csv(tmp_path / "empty.csv", index=False)
    for name, file in (("papers", "notes.txt"), ("fakes", "x.png")):
        for each in ("a", "b"):
            (tmp_path / name / each).mkdir(parents=True)
            (tmp_path / name / each / file).write_text("words")
    (tmp_path / "single" / "cats").mkdir(parents=True)
    Image.new("RGB", (9, 9)).save(tmp_path / "single" / "cats" / "a.png")
    good = decided(table, [0, 7], ["keep", "change"], ["setosa", "setosa"])
    other = decided(table.assign(note="else"), [0, 7], ["keep", "change"], ["setosa", "setosa"])
    for name, frame in {
        "other": other,
        "beyond": good.assign(row=[0, 999]),
        "rose": good.assign(label="rose"),
        "maybe": good.assign(decision="maybe"),
    }.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    np.save(tmp_path / "short.npy", np.ones((5, 2)))
    np.save(tmp_path / "flat.npy", np.ones(ROWS))
    np.save(tmp_path / "holes.npy", np.full((ROWS, 2), np.nan))
    np.savez(tmp_path / "two.npz", a=np.ones((ROWS, 2)), b=np.ones((ROWS, 2)))
    np.save(tmp_path / "pair.npy", np.full((ROWS, 2), 0.5))
    np.save(tmp_path / "large.npy", np.full((ROWS, 3), 0.5))
    certain = table["kind"].to_numpy()[:, None] == np.array(["setosa", "versicolor", "virginica"])
    np.save(tmp_path / "certain.npy", np.where(certain.any(axis=1)[:, None], certain, 1 / 3))
    table.assign(kind=["rose", *table["kind"][1:]]).to_csv(tmp_path / "lonely.csv", index=False)
    slips = ["rose", "setsoa", *table["kind"][2:]]
    table.assign(kind=slips).to_csv(tmp_path / "slips.csv", index=False)
    pd.DataFrame(np.full((ROWS, 3), 1 / 3), columns=list("abc")).to_csv(
        tmp_path / "names.csv", index=False
    )


REFUSED_BY_THE_CLEANER = {
    "probabilities of rows seen": (
        (*CLEAN, "--probabilities", "certain.npy"),
        "--probabilities certain.npy is certain of every given label",
    ),
    "a class of one row": (
        ("clean", "lonely.csv", "--label", "kind"),
        "The class 'rose' has one row",
    ),
    "classes of one row, all named at once": (
        ("clean", "slips.csv", "--label", "kind"),
        "The classes ['rose', 'setsoa'] have one row",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("case", BAD | REFUSED_BY_THE_CLEANER)
def test_bad_input_is_one_sentence_and_leaves_nothing(case, untuned, spoilt, tmp_path, monkeypatch):
    if case in REFUSED_BY_THE_CLEANER:
        monkeypatch.delitem(vars(estimators), "LabelCleaner")  # the stand-in takes everything
    before = sorted(tmp_path.rglob("*"))
    arguments, words = (BAD | REFUSED_BY_THE_CLEANER)[case]
    code, printed, err = untuned(*arguments, "--out", "deep/out")
    assert (code, printed) == (2, "")
    assert words in err
    assert err.startswith("untuned: ")
    assert err.count("\n") == 1
    assert_one_sentence(err.removeprefix("untuned: ").strip())
    assert sorted(tmp_path.rglob("*")) == before
