"""A fitted model in a file that runs no code when it is loaded: plain scikit-learn, by skops."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

FILE = "model.skops"
# What `skops.io.load` must be told to trust: a NumPy dtype, which scikit-learn's imputer holds.
TRUSTED = ["numpy.dtype"]


def classifier(coef: np.ndarray, intercept: np.ndarray, classes: np.ndarray) -> Any:
    """scikit-learn's logistic regression with the coefficients given."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression()
    model.coef_, model.intercept_ = _float64(coef), _float64(intercept)
    # Text as NumPy's own type: an array of objects would be another type to trust.
    is_text = classes.dtype == object
    model.classes_ = classes.astype(str) if is_text else classes
    model.n_features_in_, model.n_iter_ = coef.shape[1], np.zeros(1, np.int32)
    return model


def regressor(coef: np.ndarray, intercept: Any) -> Any:
    """scikit-learn's ridge regression with the coefficients given."""
    from sklearn.linear_model import Ridge

    model = Ridge()
    model.coef_, model.intercept_ = _float64(coef), float(np.ravel(intercept)[0])
    model.n_features_in_ = coef.shape[-1]
    return model


def save(folder: Path, preparation: Any, model: Any) -> str:
    """Write the columns' preparation, if any, and the model as one pipeline; gives its name."""
    from sklearn.pipeline import Pipeline

    with _without_torch():
        from skops import io

    first = [] if preparation is None else [("prepare", preparation)]
    whole = Pipeline([*first, ("model", model)])
    io.dump(whole, folder / FILE, compression=zipfile.ZIP_DEFLATED)
    return FILE


@contextmanager
def _without_torch() -> Iterator[None]:
    """Inside, nothing imports torch, unless it is there already.

    skops looks at all packages of scikit-learn when it is imported, and one of those imports torch
    where it is installed: for seconds, and for nothing.
    """
    if "torch" in sys.modules:
        yield
        return
    sys.modules["torch"] = None  # type: ignore[assignment]  # Python's way to refuse an import
    try:
        yield
    finally:
        del sys.modules["torch"]


def _float64(values: Any) -> np.ndarray:
    return np.asarray(values, np.float64)
