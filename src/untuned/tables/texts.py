"""Columns of prose, as sparse columns of how often words and pieces of words occur in them.

Words and pieces are hashed, so nothing but their frequencies is learned: a saved model holds two
arrays for a column of texts, where a list of words would hold a hundred thousand objects.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    import pandas

WIDTH = 2**15  # columns for words, and as many for pieces of words
PIECES = (2, 4)  # letters in a piece of a word
# What is counted: pieces of words know misspellings, and words can be shown to people.
Parts = tuple[Literal["words", "pieces"], ...]
WORDS: Parts = ("words",)
WORDS_AND_PIECES: Parts = ("words", "pieces")
# More words than this on average are prose; fewer are a name, a title or a code.
WORDS_OF_A_NAME = 3
SAMPLE = 1000
# Scripts that put no space between words: a letter counts as half a word.
UNSPACED = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")


def are_prose(values: pandas.Series) -> bool:
    """Whether these strings, none of them missing, are texts of several words."""
    sample = values.iloc[:: max(1, len(values) // SAMPLE)]
    if not sample.map(lambda value: isinstance(value, str)).all():
        return False
    counts = [len(text.split()) + len(UNSPACED.findall(text)) / 2 for text in sample]
    return float(np.mean(counts)) > WORDS_OF_A_NAME


def step(parts: Parts) -> Any:
    """The scikit-learn steps for one column of texts; a missing text is an empty one."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline

    counters = {
        "words": _frequencies(analyzer="word"),
        "pieces": _frequencies(analyzer="char_wb", ngram_range=PIECES),
    }
    return make_pipeline(
        SimpleImputer(strategy="constant", fill_value=""),
        # The inner 0 makes one row of texts of a column, as the counters want it.
        ColumnTransformer([(part, counters[part], 0) for part in parts], sparse_threshold=1.0),
    )


def width(fitted: Any) -> int:
    """How many columns the fitted `step` makes."""
    return WIDTH * len(fitted[-1].transformers_)


def in_words(parts: Parts) -> str:
    """What is counted, for people."""
    return "frequencies of words" + (" and of pieces of words" if "pieces" in parts else "")


def _frequencies(**how: Any) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from sklearn.pipeline import make_pipeline

    # Two words in one column add up; with signs they could cancel, and have no logarithm.
    options = {"n_features": WIDTH, "alternate_sign": False, "norm": None, "dtype": np.float32}
    return make_pipeline(HashingVectorizer(**options, **how), TfidfTransformer(sublinear_tf=True))


def words_of(text: Any, fitted: Any) -> dict[str, int]:
    """The different words of a text, and the column of the fitted `step` each is counted in."""
    counts = fitted[-1].named_transformers_["words"][0]
    words = sorted(set(counts.build_analyzer()(text))) if isinstance(text, str) else []
    return dict(zip(words, counts.transform(words).indices.tolist(), strict=True)) if words else {}


def named(values: pandas.Series, fitted: Any) -> list[str]:
    """Of each column of words the word it counts; of several the most frequent, with a mark."""
    counter = fitted[-1].named_transformers_["words"][0]
    analyze = counter.build_analyzer()
    counts = Counter(word for text in values.dropna() for word in analyze(text))
    names = [""] * WIDTH
    if counts:
        words = [word for word, _ in counts.most_common()]
        for word, place in zip(words, counter.transform(words).indices.tolist(), strict=True):
            names[place] = names[place] + "\u2026" if names[place] else word
    return [re.sub("\u2026+", "\u2026", name) for name in names]
