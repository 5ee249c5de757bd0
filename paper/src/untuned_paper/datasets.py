"""Real data sets: from the folder UNTUNED_DATA, or by their usual fetcher into the user's cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from untuned.util import damage
from untuned.util.wording import reason, unknown

VARIABLE = "UNTUNED_DATA"


def _covtype() -> dict[str, np.ndarray]:
    from sklearn.datasets import fetch_covtype

    features, labels = fetch_covtype(return_X_y=True)
    return {"X": features, "y": labels}


def _mnist() -> dict[str, np.ndarray]:
    from sklearn.datasets import fetch_openml

    # The first 60,000 rows are the official training set, in its order.
    features, labels = fetch_openml(
        "mnist_784", version=1, return_X_y=True, as_frame=False, parser="auto"
    )
    labels = labels.astype(np.uint8)
    return {
        "X_train": features[:60_000],
        "y_train": labels[:60_000],
        "X_test": features[60_000:],
        "y_test": labels[60_000:],
    }


# None: there is no fetcher with a checksum, so the file must be given.
FETCHERS: dict[str, Callable[[], dict[str, np.ndarray]] | None] = {
    "cifar100": None,
    "covtype": _covtype,
    "ijcnn1": None,
    "mnist": _mnist,
}
FIELDS = {
    "cifar100": ("X_train", "y_train", "X_test", "y_test"),
    "covtype": ("X", "y"),
    "ijcnn1": ("X_train", "y_train", "X_test", "y_test"),
    "mnist": ("X_train", "y_train", "X_test", "y_test"),
}


def load(name: str) -> dict[str, np.ndarray]:
    """The arrays of a data set, or an error that says which file is needed."""
    if name not in FETCHERS:
        raise unknown("data set", name, FETCHERS)
    folder = os.environ.get(VARIABLE)
    path = Path(folder) / f"{name}.npz" if folder else None
    if path and path.is_file():
        return _read(path, FIELDS[name])
    where = f"{path} does not exist" if path else f"{VARIABLE} is not set"
    remedy = (
        f"put {name}.npz with the fields {', '.join(FIELDS[name])} into a folder and name that "
        f"folder in {VARIABLE}"
    )
    fetch = FETCHERS[name]
    if fetch is None:
        raise ValueError(
            f"The data set {name} is not here ({where}) and cannot be downloaded; {remedy}."
        )
    try:
        return fetch()
    except OSError as error:  # urllib's errors are among them
        raise ValueError(
            f"The data set {name} is not here ({where}) and could not be downloaded "
            f"({str(error)[:80]}); go online, or {remedy}."
        ) from None


def _read(path: Path, fields: tuple[str, ...]) -> dict[str, np.ndarray]:
    def sentence(error: Exception) -> str:
        why = reason(error, 80)
        return f"The data file {path} cannot be read as .npz ({why}); give the whole file."

    # Opened here: NumPy leaves a file open if it is not an archive.
    with damage.told(sentence), path.open("rb") as opened, np.load(opened) as file:
        missing = [field for field in fields if field not in file]
        if not missing:
            return {field: file[field] for field in fields}
    raise ValueError(
        f"The data file {path} has no field {missing[0]!r}; expected {', '.join(fields)}."
    )
