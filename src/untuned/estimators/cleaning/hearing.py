"""What is made of a round's opinions: honest voices, their pool, and the noise of labels."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from untuned.estimators.cleaning import noise, pooling
from untuned.estimators.cleaning.folds import Task
from untuned.estimators.cleaning.pooling import Pool
from untuned.run import minimize
from untuned.run.result import Result

FIRST_POOLINGS, POOLINGS = 4, 2  # at most: weights and noise, each given the other
STILL = 0.01  # change of the noise after which it is not asked for again


class Hearing:
    """A task, and how pools and noise are learned about it."""

    def __init__(self, task: Task, options: dict[str, Any], ends: float):
        self.task = task
        self.options = options  # of `minimize`
        self.ends = ends
        self.noisy = ~task.trusted
        self.half = np.random.default_rng(task.seed).permutation(len(task.label)) % 2 == 0

    def over(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() > self.ends

    def learn(self, *args: Any, **more: Any) -> Result:
        """`minimize` in what time is left."""
        left = None if self.ends == np.inf else max(self.ends - time.monotonic(), 1e-3)
        return minimize(*args, max_seconds=left, **(self.options | more))

    def likelihood(self, transition: np.ndarray) -> np.ndarray:
        """P(given label | true label j) of each row; a trusted label is the true one."""
        certain = np.eye(self.task.classes)[self.task.label]
        return np.where(self.task.trusted[:, None], certain, transition.T[self.task.label])

    def pool(
        self, voices: np.ndarray, likelihood: np.ndarray, start: np.ndarray, rows: Any = slice(None)
    ) -> Pool:
        """Weights and offsets, from all rows or some."""
        known = pooling.Rows(voices, likelihood, self.task.weight[rows], self.half[rows])
        return pooling.learn(known, start, self.learn)

    def settle(
        self, voices: np.ndarray, transition: np.ndarray
    ) -> tuple[Pool, np.ndarray, np.ndarray]:
        """The pool and the noise that go together, and probabilities of true labels."""
        start = np.full(len(voices), 1 / len(voices))
        for _ in range(POOLINGS):
            pool = self.pool(voices, self.likelihood(transition), start)
            start, probabilities = pool.weights, pool.probabilities(voices)
            before, transition = transition, self.noise_of(probabilities, transition)
            if np.abs(transition - before).max() < STILL:
                break
        return pool, transition, probabilities

    def noise_of(self, probabilities: np.ndarray, start: np.ndarray) -> np.ndarray:
        """The most likely noise."""
        task, noisy = self.task, self.noisy
        return noise.fit_transition(
            probabilities[noisy], task.label[noisy], task.weight[noisy], start
        )


class First(NamedTuple):
    """What the first round leaves behind."""

    opinions: list[np.ndarray]  # (folds, rows, classes) of each judge
    calibrations: list[Pool]
    pool: Pool
    taken_out: np.ndarray  # the noise without which the judges were pooled
    transition: np.ndarray
    probabilities: np.ndarray

    def targets(self, hearing: Hearing, fold: int) -> np.ndarray:
        """Probabilities of true labels that the judge of this fold may learn from."""
        voices = []
        for opinion, calibration in zip(self.opinions, self.calibrations, strict=True):
            honest = calibration.probabilities(pooling.voice(opinion[fold])[None])
            voices.append(pooling.voice(noise.without_noise(honest, self.taken_out)))
        joint = self.pool.probabilities(np.stack(voices)) * hearing.likelihood(self.transition)
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
        calibrations.append(hearing.pool(voice, own, np.ones(1)))
        honest.append(calibrations[-1].probabilities(voice))
    best = max(honest, key=lambda p: task.weight @ np.log(p[at, task.label] + noise.TINY))
    noisy = hearing.noisy
    transition = noise.first_guess(best[noisy], task.label[noisy], task.weight[noisy])
    start = np.full(len(honest), 1 / len(honest))
    for _ in range(FIRST_POOLINGS):
        voices = np.stack([pooling.voice(noise.without_noise(p, transition)) for p in honest])
        pool = hearing.pool(voices, hearing.likelihood(transition), start)
        start, probabilities = pool.weights, pool.probabilities(voices)
        taken_out, transition = transition, hearing.noise_of(probabilities, transition)
        if np.abs(transition - taken_out).max() < STILL:
            break
    return First(opinions, calibrations, pool, taken_out, transition, probabilities)
