"""What speaks against a label: the values of a row that a linear model counts for another class."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse

from untuned.commands.job import Ready
from untuned.commands.verdicts import Verdicts
from untuned.tables import columns, texts
from untuned.util import wording

MOST = 5  # reasons per row
LEAST = 0.02  # of the row's whole evidence; less is not worth reading


def of_suspects(ready: Ready, found: Verdicts) -> Any:
    """A frame with a few lines per suspect: row, column, value, share of the evidence.

    The evidence of a feature for the suggested class s against the given class g is
    (w_s - w_g)_j (x_j - mean_j); the words of a text count by themselves.
    """
    import pandas

    lines: list[tuple[int, str, str, float]] = []
    if found.coef is not None and found.classes is not None and _has_columns(ready):
        names = [each.column for each in ready.seen]
        owners, owner = np.unique(names, return_inverse=True)
        mean = np.asarray(ready.X.mean(axis=0)).ravel()
        parts = columns.prose(ready.preparation)
        for position in found.issues:
            lines += _of_row(ready, found, int(position), owners, owner, mean, parts)
    return pandas.DataFrame(lines, columns=["row", "column", "value", "share"])


def _has_columns(ready: Ready) -> bool:
    return ready.preparation is not None and hasattr(ready.preparation, "transformers_")


def _of_row(
    ready: Ready, found: Verdicts, position: int, owners: np.ndarray, owner: np.ndarray,
    mean: np.ndarray, parts: dict[str, Any],
) -> list[tuple[int, str, str, float]]:  # fmt: skip
    direction = _direction(found, ready.y[position], found.suggested[position])
    row = ready.X[position]
    values = row.toarray().ravel() if issparse(row) else row
    speaks = direction * values
    total = np.abs(speaks).sum()
    if not total > 0:
        return []
    centred = np.bincount(owner, direction * (values - mean), len(owners))
    raw = ready.rows([position]).iloc[0]
    reasons = [
        (float(amount), str(name), "")
        for name, amount in zip(owners, centred, strict=True)
        if amount > 0 and name not in parts
    ]
    for name, (step, start) in parts.items():
        for word, column in texts.words_of(raw[name], step).items():
            reasons.append((float(speaks[start + column]), name, word))
    reasons.sort(reverse=True)
    whole = sum(amount for amount, _, _ in reasons if amount > 0)
    return [
        (int(ready.labels.rows[position]), name, word or shown(raw[name]), round(amount / whole, 3))
        for amount, name, word in reasons[:MOST]
        if amount > 0 and amount >= LEAST * whole
    ]


def _direction(found: Verdicts, given: Any, suggested: Any) -> np.ndarray:
    coef, classes = np.asarray(found.coef), found.classes
    assert classes is not None
    if len(classes) == 2:
        return coef[0] if suggested == classes[1] else -coef[0]
    first, second = np.searchsorted(classes, [given, suggested])
    return coef[second] - coef[first]


def shown(value: Any) -> str:
    """A value as it stands on a card."""
    import pandas

    if pandas.isna(value):
        return "missing"
    return wording.number(float(value)) if isinstance(value, float | np.floating) else str(value)
