"""Columns of texts: which are, and what is made of them."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from skops import io as skops

from untuned.commands.job import make_ready, make_trusted_ready
from untuned.commands.sources import TAKES
from untuned.tables import columns, texts

GOOD = "the film was good and the music lovely"
BAD = "a dull plot with wooden actors in it"


@pytest.fixture
def reviews(tmp_path):
    """Two kinds of sentences, each row a little different, among other columns."""
    rows = 60
    frame = pd.DataFrame(
        {
            "review": [f"{BAD if row % 2 else GOOD}, said person {row}" for row in range(rows)],
            "title": [f"No. {row}" for row in range(rows)],
            "stars": np.arange(rows) % 5 + 0.5,
            "when": [f"2020-01-{row % 28 + 1:02d}" for row in range(rows)],
            "user": [f"{row:032x}" for row in range(rows)],
            "verdict": ["bad" if row % 2 else "good" for row in range(rows)],
        }
    )
    frame.loc[4, "review"] = None
    path = tmp_path / "reviews.csv"
    frame.to_csv(path, index=False)
    return path


def kinds(path, reads_text):
    ready = make_ready(path, "verdict", "classes", TAKES if reads_text else columns.DENSE)
    return ready, {column.name: column.kind for column in ready.columns}


def test_texts_are_told_from_names_dates_and_identifiers(reviews):
    ready, found = kinds(reviews, True)
    assert found == {
        "review": "text",
        "title": "left out",
        "stars": "numbers",
        "when": "left out",
        "user": "left out",
    }
    assert sparse.issparse(ready.X)
    assert ready.X.dtype == np.float32
    assert ready.X.shape == (60, 2 * texts.WIDTH + 1) == (60, len(ready.seen))
    assert "1 column of text ('review'): read as frequencies of words" in " ".join(ready.notes)
    # Other commands take dense rows, and leave texts out as before.
    ready, found = kinds(reviews, False)
    assert found["review"] == "left out"
    assert ready.X.shape == (60, 1)


def test_rows_alike_are_near_and_a_missing_text_is_empty(reviews):
    ready, _ = kinds(reviews, True)
    X = ready.X[:, 1:]  # without the stars
    near, far = (X[0] @ X[2].T)[0, 0], (X[0] @ X[1].T)[0, 0]
    assert near > 3 * far
    assert X[4].nnz == 0


def test_words_are_found_in_their_columns(reviews):
    ready, _ = kinds(reviews, True)
    step = next(step for kind, step, _ in ready.preparation.transformers_ if "text" in kind)
    words = texts.words_of(BAD, step)
    assert set(words) == {"dull", "plot", "with", "wooden", "actors", "in", "it"}
    row = ready.X[1].toarray().ravel()[1:]
    assert all(row[column] > 0 for column in words.values())
    assert texts.words_of(float("nan"), step) == {}


def test_trusted_rows_have_the_same_words(reviews, tmp_path):
    ready, _ = kinds(reviews, True)
    X, _ = make_trusted_ready(reviews, "verdict", ready)
    assert abs(X - ready.X).max() == 0
    frame = pd.read_csv(reviews).assign(review=1.5)
    frame.to_csv(tmp_path / "numbers.csv", index=False)
    with pytest.raises(ValueError, match=r"Column 'review' is text in .* and something else in"):
        make_trusted_ready(tmp_path / "numbers.csv", "verdict", ready)


def test_the_steps_are_saved_small_and_run_nothing(reviews, tmp_path):
    """A list of words would be a hundred thousand objects, which skops takes minutes for."""
    ready, _ = kinds(reviews, True)
    skops.dump(ready.preparation, tmp_path / "steps.skops")
    assert set(skops.get_untrusted_types(file=tmp_path / "steps.skops")) <= {"numpy.dtype"}
    again = skops.load(tmp_path / "steps.skops", trusted=["numpy.dtype"])
    assert abs(again.transform(pd.read_csv(reviews)) - ready.X).max() < 1e-6


@pytest.mark.parametrize(
    ("value", "is_prose"),
    [
        ("Anna Maria Smith", False),
        ("3f2504e0-4f89-11d3-9a0c-0305e82c3301", False),
        ("it rained all day long", True),
        ("今天天气很好我们去公园散步", True),
        ("東京", False),
    ],
)
def test_what_prose_is(value, is_prose):
    assert texts.are_prose(pd.Series([value] * 9)) is is_prose


@pytest.mark.parametrize("empty", [None, "", "   "])
def test_a_table_whose_only_text_is_empty_is_refused(empty, tmp_path):
    frame = pd.DataFrame({"text": [empty] * 8, "y": ["a", "b"] * 4})
    with pytest.raises(ValueError, match="has no column to learn from besides the label"):
        columns.understand(frame[["text"]], tmp_path / "t.csv", TAKES)
