"""Curves of a comparison: medians over seeds along an axis, with quartiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from untuned_paper.comparison import grids, standings
from untuned_paper.comparison.measurement import DIVERGED
from untuned_paper.comparison.pool import REFERENCE
from untuned_paper.comparison.records import groups

if TYPE_CHECKING:
    import pandas

GAP, LOSS = "gap", "validation_loss"
INFINITE = 1e200  # a number, since quantiles cannot be taken between infinities
LOWEST_GAP = 1e-5  # the best run ends at zero, which a logarithm cannot show


class Curve(NamedTuple):
    """A method at a setting: medians along the axis, quartiles, and where seeds diverged."""

    method: str
    setting: str
    across: np.ndarray
    low: np.ndarray
    middle: np.ndarray
    high: np.ndarray
    ends: list[tuple[float, float]]  # the last finite point of each seed that diverged
    seeds: int

    @property
    def name(self) -> str:
        """The method, with a note if it alone ran on all rows."""
        on_all_rows = self.setting == grids.ALL_ROWS
        return f"{self.method}, {self.setting}" if on_all_rows else self.method

    @property
    def label(self) -> str:
        """The name in a legend."""
        lost = f" (diverged {len(self.ends)}/{self.seeds})" if self.ends else ""
        return self.name + lost


def curves(
    records: pandas.DataFrame, problem: str, column: str, axis: str, height: str
) -> list[Curve]:
    """The curves of one panel: all methods that need no tuning, the others at one setting."""
    shown = records[(records["problem"] == problem) & (records["method"] != REFERENCE)]
    ends, (_, top) = standings.scale(records, problem), limits(records, problem, height)
    found = []
    for (method, setting), group in groups(shown, "method", "setting"):
        if setting != column and grids.is_billed(method):
            continue
        runs = [run for _, run in groups(group, "seed")]
        paths = []
        for run in runs:
            values = run["value"] if height == GAP else run[LOSS]
            values = np.maximum(ends.gap(values), LOWEST_GAP) if height == GAP else values
            across = run[axis].to_numpy(float, copy=True)
            if len(across) > 1:  # zero has no logarithm: the start stands before the first record
                across[0] = across[1] / 2
            paths.append((across, np.asarray(values, float)))
        lost = [
            (path[0][np.isfinite(path[1])][-1], path[1][np.isfinite(path[1])][-1])
            for run, path in zip(runs, paths, strict=True)
            if run["status"].iloc[-1] == DIVERGED
        ]
        across, low, middle, high = _quartiles(paths)
        high = np.minimum(high, 2 * top)  # a band may leave the picture, not stretch it
        found.append(Curve(method, setting, across, low, middle, high, lost, len(runs)))
    return found


def limits(records: pandas.DataFrame, problem: str, height: str) -> tuple[float, float]:
    """The ends of a vertical axis: from below the best to a little above the start."""
    shown = records[(records["problem"] == problem) & (records["method"] != REFERENCE)]
    if height == GAP:
        gaps = standings.scale(records, problem).gap(shown["value"].to_numpy(float))
        least = min(np.nanmin(np.maximum(gaps, LOWEST_GAP)), *standings.TARGETS.values())
        return float(least) / 2, 3.0
    losses = shown[LOSS].to_numpy(float)
    least, start = np.nanmin(losses), losses[shown["step"].to_numpy() == 0].max()
    margin = 0.05 * (start - least)
    return float(least - margin), float(start + margin)


def _quartiles(paths: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, ...]:
    """Record by record; the last records together, since runs that the clock ends differ in length.

    A seed that diverged counts as infinite from there on, so that it cannot make a median better.
    """
    longest = max(len(across) for across, _ in paths)
    across, values = np.full((2, len(paths), longest), np.nan)
    for row, (where, what) in enumerate(paths):
        finite = np.isfinite(what)
        count = len(where)
        across[row, :count] = where
        values[row, :count] = np.where(finite, what, INFINITE)
        if finite[-1]:
            across[row, count - 1 :] = where[-1]
            values[row, count - 1 :] = what[-1]
        else:
            values[row, count:] = INFINITE
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
    keep = middle < INFINITE / len(paths)
    return np.nanmedian(across[:, keep], axis=0), low[keep], middle[keep], high[keep]
