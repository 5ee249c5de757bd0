"""Average accuracy and forgetting, from the accuracies a[t, i] on task i after learning task t."""

from __future__ import annotations

import numpy as np


def average_accuracy(a: np.ndarray) -> float:
    """A_T: the mean over tasks after the last one."""
    return float(np.mean(a[-1]))


def forgetting(a: np.ndarray) -> float:
    """FGT_T as the older code prints it: over tasks before the last, the best before minus now."""
    before = np.nanmax(a[:-1, :-1], axis=0)
    return float(np.mean(before - a[-1, :-1]))


def forgetting_up_to_last(a: np.ndarray) -> float:
    """As the older code saves it: the best includes the last, so no task counts below zero."""
    return float(np.mean(np.nanmax(a[:, :-1], axis=0) - a[-1, :-1]))


def forgetting_as_written(a: np.ndarray) -> float:
    """As the paper writes it, 1/T in place of 1/(T-1): the last task was never evaluated before."""
    return forgetting(a) * (len(a) - 1) / len(a)
