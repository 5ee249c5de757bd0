"""Tables with true labels for label_cleaner.py, and ways of making some of the labels wrong.

`CONFIRM` names the tables that were not watched while the judges and the noise model were written
(ijcnn1 and MNIST were for the linear judge alone, earlier). The others were watched, or are made
up, from fixed seeds, in ways much like those that were.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix, issparse
from sklearn import datasets as bundled

from untuned.tables import patches
from untuned_paper import datasets

Loaded = tuple[Any, np.ndarray]
PEOPLE = "people"  # the noise of labels that people gave


class Noisy(NamedTuple):
    """Rows, the labels they were given, and which of these are wrong."""

    X: Any
    given: np.ndarray
    wrong: np.ndarray


def make(name: str, rows: int, share: float, to_next: bool, seed: int = 0) -> Noisy:
    """At most so many rows of a table, a share of their labels changed to another class.

    Labels go to the next class, or to any other one alike. Both kinds are the same for two
    classes.
    """
    X, true = TABLES[name]()
    X, (true,) = _some(X, rows, seed, true)
    classes, true = np.unique(true, return_inverse=True)
    rng = np.random.default_rng(seed + 1)
    wrong = np.zeros(len(true), bool)
    wrong[rng.permutation(len(true))[: round(share * len(true))]] = True
    shift = 1 if to_next else rng.integers(1, len(classes), len(true))
    return Noisy(X, np.where(wrong, (true + shift) % len(classes), true), wrong)


def by_people(rows: int, seed: int = 0) -> Noisy:
    """CIFAR-100's images by their patches, with the coarse classes that people gave them."""
    images = datasets.load("cifar100")["X_train"]
    with np.load(_folder() / "cifar100n.npz") as file:
        given, true = file["noisy_coarse_label"], file["clean_coarse_label"]
    order = np.random.default_rng(seed).permutation(len(images))[:rows]
    X, _ = patches.of_images(images[order], seed)
    given, true = given[order].astype(int), true[order].astype(int)
    return Noisy(X.astype(np.float32), given, given != true)


def _some(X: Any, rows: int, seed: int, *labels: np.ndarray) -> tuple[Any, list[np.ndarray]]:
    count = X.shape[0]
    order = np.random.default_rng(seed).permutation(count)[:rows]
    X = X[order]
    if not issparse(X):
        X = np.asarray(X, np.float32).reshape(len(order), -1)
    return X, [each[order] for each in labels]


def _folder() -> Path:
    folder = os.environ.get(datasets.VARIABLE)
    if not folder:
        raise ValueError(
            f"{datasets.VARIABLE} is not set; name the folder of the data files in it."
        )
    return Path(folder)


def classification() -> Loaded:
    """Five classes of three clusters each, some columns without meaning."""
    return bundled.make_classification(
        4000, 24, n_informative=10, n_redundant=4, n_classes=5, n_clusters_per_class=3,
        flip_y=0.0, class_sep=1.3, random_state=11,
    )  # fmt: skip


def moons() -> Loaded:
    """Two half circles in two of eight columns, the rest being noise."""
    X, y = bundled.make_moons(3000, noise=0.2, random_state=12)
    more = np.random.default_rng(12).normal(scale=0.4, size=(len(y), 6))
    return np.hstack([X, more]), y


def mixture() -> Loaded:
    """Six classes, each a mixture of three round clouds."""
    rng = np.random.default_rng(13)
    y, part = rng.integers(0, 6, 3000), rng.integers(0, 3, 3000)
    centres = rng.normal(scale=2.5, size=(6, 3, 8))
    return centres[y, part] + rng.normal(size=(3000, 8)), y


def heavy_tails() -> Loaded:
    """Classes of unequal size, columns that scatter as Cauchy's and Student's do."""
    rng = np.random.default_rng(14)
    y = rng.choice(5, 4000, p=[0.4, 0.25, 0.15, 0.12, 0.08])
    X = rng.normal(scale=2.0, size=(5, 10))[y]
    X[:, :2] += 0.3 * rng.standard_cauchy((len(y), 2))
    X[:, 2:] += rng.standard_t(2.5, (len(y), 8))
    return X, y


def mail() -> Loaded:
    """Shares of words, mostly zero, some of them more usual in one of two kinds of mail."""
    rng = np.random.default_rng(15)
    y = (rng.random(4000) < 0.4).astype(int)
    often = rng.beta(0.8, 6.0, 60)
    lift = np.exp(np.where(rng.random(60) < 0.5, rng.normal(scale=0.8, size=60), 0.0))
    present = rng.random((len(y), 60)) < np.minimum(often * np.where(y[:, None], lift, 1.0), 0.95)
    return present * rng.lognormal(-0.5, 1.0, (len(y), 60)), y


def letters() -> Loaded:
    """26 classes of three clouds each, whole numbers."""
    rng = np.random.default_rng(21)
    y, part = rng.integers(0, 26, 6000), rng.integers(0, 3, 6000)
    centres = rng.normal(scale=1.6, size=(26, 3, 16))
    return np.round(2 * (centres[y, part] + rng.normal(size=(6000, 16)))), y


def overlap() -> Loaded:
    """Four round clouds that lie in each other."""
    rng = np.random.default_rng(22)
    y = rng.integers(0, 4, 3000)
    return rng.normal(scale=0.9, size=(4, 6))[y] + rng.normal(size=(3000, 6)), y


def fifths() -> Loaded:
    """Fifths of a number that is predicted with an error."""
    X, number = bundled.make_friedman1(3000, 8, noise=2.0, random_state=23)
    return X, np.digitize(number, np.quantile(number, [0.2, 0.4, 0.6, 0.8]))


def circles() -> Loaded:
    """Two rings in two of six columns."""
    X, y = bundled.make_circles(2500, noise=0.12, factor=0.5, random_state=31)
    return np.hstack([X, np.random.default_rng(31).normal(scale=0.5, size=(len(y), 4))]), y


def shells() -> Loaded:
    """Four shells around one point, in ten columns."""
    return bundled.make_gaussian_quantiles(
        n_samples=4000, n_features=10, n_classes=4, random_state=32
    )


def sums() -> Loaded:
    """Whether a sum of ten squares is large."""
    X, y = bundled.make_hastie_10_2(4000, random_state=33)
    return X, (y > 0).astype(int)


def roll() -> Loaded:
    """A rolled sheet, cut in six along the roll."""
    X, place = bundled.make_swiss_roll(3000, noise=0.6, random_state=34)
    return X, np.digitize(place, np.quantile(place, np.arange(1, 6) / 6))


def thirds() -> Loaded:
    """Thirds of how far diabetes went on, 442 people."""
    X, number = bundled.load_diabetes(return_X_y=True)
    return X, np.digitize(number, np.quantile(number, [1 / 3, 2 / 3]))


def covtype() -> Loaded:
    """Kinds of forest."""
    data = datasets.load("covtype")
    return data["X"], data["y"].astype(int)


def ijcnn1() -> Loaded:
    """Misfires of an engine, rare."""
    data = datasets.load("ijcnn1")
    return data["X_train"], data["y_train"].astype(int)


def mnist() -> Loaded:
    """Digits as pixels."""
    data = datasets.load("mnist")
    return data["X_train"].reshape(-1, 784), data["y_train"].astype(int)


def housing() -> Loaded:
    """Californian districts, in five classes of price."""
    with np.load(_folder() / "california_housing.npz") as file:
        X, price = file["X"], file["y"]
    return X, np.digitize(price, np.quantile(price, [0.2, 0.4, 0.6, 0.8]))


def newsgroups() -> Loaded:
    """TF-IDF of articles, sparse."""
    with np.load(_folder() / "20news_tfidf20k.npz") as file:
        parts = [file[f"X_train_{name}"] for name in ("data", "indices", "indptr")]
        shape, y = tuple(file["X_train_shape"]), file["y_train"]
    data, indices, starts = parts
    return csr_matrix((data, indices.astype(np.int32), starts), shape=shape), y.astype(int)


def fortunes() -> Loaded:
    """TF-IDF of short texts on ten topics, sparse."""
    import pandas
    from sklearn.feature_extraction.text import TfidfVectorizer

    frame = pandas.read_csv(_folder() / "fortunes.csv")
    words = TfidfVectorizer(sublinear_tf=True, min_df=2, dtype=np.float32)
    return words.fit_transform(frame["text"].astype(str)).tocsr(), frame["topic"].to_numpy(str)


def _bundled(load: Callable[..., Any]) -> Callable[[], Loaded]:
    return lambda: load(return_X_y=True)


TABLES: dict[str, Callable[[], Loaded]] = {
    "digits": _bundled(bundled.load_digits),
    "breast-cancer": _bundled(bundled.load_breast_cancer),
    "wine": _bundled(bundled.load_wine),
    "iris": _bundled(bundled.load_iris),
    "classification": classification,
    "moons": moons,
    "mixture": mixture,
    "heavy-tails": heavy_tails,
    "mail": mail,
    "letters": letters,
    "overlap": overlap,
    "fifths": fifths,
    "thirds": thirds,
    "circles": circles,
    "shells": shells,
    "sums": sums,
    "roll": roll,
    "covtype": covtype,
    "ijcnn1": ijcnn1,
    "mnist": mnist,
    "housing": housing,
    "20news": newsgroups,
    "fortunes": fortunes,
}
CIFAR = "cifar100n"  # whose labels are wrong as they came
CONFIRM = {"ijcnn1", "mnist", "housing", "circles", "sums", "roll", CIFAR}
