"""What judges say who have learned the labels as they were given, made honest and pooled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from untuned.estimators.cleaning import noise, pooling
from untuned.estimators.cleaning.hearing import Hearing, Settled
from untuned.estimators.cleaning.labelled_rows import scarce
from untuned.estimators.cleaning.pooling import Pool

POOLINGS = 4  # at most: weights and noise, each given the other


class First(NamedTuple):
    """What the first round leaves behind."""

    opinions: list[np.ndarray]  # (folds, rows, classes) of each judge
    calibrations: list[Pool]
    settled: Settled

    def targets(self, hearing: Hearing, fold: int) -> np.ndarray:
        """Probabilities of true labels that the judge of this fold may learn from."""
        voices = []
        for opinion, calibration in zip(self.opinions, self.calibrations, strict=True):
            said = opinion[fold].astype(np.float32)  # it may be in half precision
            honest = calibration.probabilities(pooling.voice(said)[None])
            voices.append(pooling.voice(noise.without_noise(honest, self.settled.taken_out)))
        likelihood = hearing.likelihood(self.settled.transition)
        joint = self.settled.pool.probabilities(np.stack(voices)) * likelihood
        return joint / np.maximum(joint.sum(axis=1, keepdims=True), noise.TINY)


def first_round(hearing: Hearing, opinions: list[np.ndarray]) -> First:
    """Pool what judges say who have learned the labels as they were given.

    Such judges know the noise as well. Each is first made honest, so that its probabilities of
    given labels are right in the mean; then the noise is taken out of them.
    """
    task = hearing.task
    at = np.arange(len(task.label))
    own = np.eye(task.classes)[task.label]
    calibrations, honest = [], []
    for opinion in opinions:
        voice = pooling.voice(opinion[task.fold, at].astype(np.float64))[None]
        some = hearing.noisy  # trusted labels are not those that judges learned to expect
        calibrations.append(hearing.pool(voice[:, some], own[some], np.ones(1), some))
        honest.append(calibrations[-1].probabilities(voice))
    best = max(honest, key=lambda p: task.weight @ np.log(p[at, task.label] + noise.TINY))
    noisy = hearing.noisy
    guess = noise.first_guess(best[noisy], task.label[noisy], task.weight[noisy])

    def voices_given(transition: np.ndarray) -> np.ndarray:
        return np.stack([pooling.voice(noise.without_noise(p, transition)) for p in honest])

    settled = hearing.settle(voices_given, guess, len(honest), POOLINGS)
    if scarce(task.X):
        settled = settled._replace(probabilities=settled.probabilities.astype(np.float32))
    return First(opinions, calibrations, settled)
