"""Pool and transition matrix, estimated in turns until they agree.

Given the transition matrix, the base models' probabilities are pooled (pool.py). Given the pool,
the matrix is estimated by expectation and maximization (noise.py). A full matrix overfits: its many
entries also explain the errors of the models. So three simpler forms are tried as well: one rate
for all classes, a few pairs of classes, and a permutation (simple_transitions.py). A form is used
only if the likelihood of the labels justifies it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from untuned.estimators.cleaning import noise, simple_transitions
from untuned.estimators.cleaning import noise_limits as limits
from untuned.estimators.cleaning import pool as pools
from untuned.estimators.cleaning.cross_fit import Task
from untuned.estimators.cleaning.noise import Predicted
from untuned.estimators.cleaning.pool import Pool

STILL = 0.01  # change of the matrix after which it is not estimated again
NEVER = 1e-3  # a share of wrong labels that is none
ABOUT_AS_LIKELY = 2.0  # log-likelihood; about a 95 % interval for one number
LogsGiven = Callable[[np.ndarray], np.ndarray]  # logarithms to pool, given the transition matrix


class Form(NamedTuple):
    """What is known of the form of a transition matrix."""

    separated: np.ndarray | None = None  # how far classes are told apart, see noise_limits.py
    pairs: np.ndarray | None = None  # True for pairs of classes with noise of their own
    permutation: np.ndarray | None = None  # the one class that each is taken for
    uniform: bool = False  # whether as many labels go from every class to every other


class Estimate(NamedTuple):
    """A pool, and the transition matrix that goes with it."""

    pool: Pool
    taken_out: np.ndarray  # the matrix with which the models were pooled
    transition: np.ndarray
    probabilities: np.ndarray  # of true labels
    form: Form = Form()


class Estimator:
    """Pools and transition matrices of a task."""

    def __init__(self, task: Task):
        self.task = task
        self.noisy = ~task.trusted
        self.rank = np.argsort(task.order)

    def likelihood(self, transition: np.ndarray) -> np.ndarray:
        """P(given label | true label j) of each row; of trusted ones, few are wrong."""
        return noise.likelihood(transition, self.task.label, self.task.trusted)

    def pool(
        self, logs: np.ndarray, likelihood: np.ndarray, start: np.ndarray | Pool,
        rows: Any = slice(None),
    ) -> Pool:  # fmt: skip
        """Weights and offsets, from all rows or some."""
        logs, likelihood = logs.swapaxes(1, 2), likelihood.T
        stacked = pools.Stacked(logs, likelihood, self.task.weight[rows])
        some = pools.sampled(stacked, np.argsort(self.rank[rows]))
        return pools.learn(some, start, self.task.settings.ends)

    def pooled(
        self, logs_given: LogsGiven, transition: np.ndarray, start: np.ndarray | Pool
    ) -> Estimate:
        """The pool under one transition matrix."""
        logs, likelihood = logs_given(transition), self.likelihood(transition)
        pool = self.pool(logs, likelihood, start)
        return Estimate(pool, transition, transition, pool.probabilities(logs))

    def calibrated(
        self, probabilities: np.ndarray, some: np.ndarray | None = None
    ) -> tuple[Pool, np.ndarray]:
        """A pool of one model that predicts given labels, and its probabilities of these."""
        some = np.ones(len(self.task.label), bool) if some is None else some
        own = np.eye(self.task.classes)[self.task.label]
        logs = pools.logs_of(probabilities)[None]
        pool = self.pool(logs[:, some], own[some], np.ones(1), some)
        return pool, pool.probabilities(logs)

    def estimate(
        self, logs_given: LogsGiven, transition: np.ndarray, models: int, rounds: int
    ) -> Estimate:
        """Pool and matrix, the matrix in the form that explains given labels best."""
        start = self.pooled(logs_given, transition, np.full(models, 1 / models))
        found = self._until_still(logs_given, start, rounds)
        if self.task.classes == 2:  # all noise is of pairs
            return found
        by_pairs = self._until_still(logs_given, start, rounds, of_pairs=True)
        if self._pairs_are_better(found, by_pairs):
            return by_pairs
        found = self._or_uniform(logs_given, found)
        return found if found.form.uniform else self._or_permutation(logs_given, found, rounds)

    def estimate_again(self, logs: np.ndarray, first: Estimate, rounds: int) -> Estimate:
        """Pool and matrix of other predictions, the matrix in the form it had."""
        start = self.pooled(lambda _: logs, first.transition, np.full(len(logs), 1 / len(logs)))
        return self._until_still(lambda _: logs, start._replace(form=first.form), rounds)

    def _until_still(
        self, logs_given: LogsGiven, found: Estimate, rounds: int, of_pairs: bool = False
    ) -> Estimate:
        """Pool and matrix in turns.

        Likelihood alone does not tell noise from overlapping classes. So noise is bounded by what
        the surest rows show. A class may have more noise than all classes together only as far as
        that noise is one-sided, and the rows of both classes concerned are clear: of two classes
        that no model tells apart, all rows could belong to either.
        """
        form, transition = found.form, found.transition
        for number in range(rounds):
            most = self._ceiling(found)
            if form.separated is None and number == 1:
                separated = limits.separated(found.probabilities, self.task.weight)
                form = form._replace(separated=separated)
            predicted = self._predicted(found.probabilities)
            likely = noise.fit_transition(predicted, transition)
            bounds = most.by_class
            if form.separated is not None:
                rows = self.task.weight @ found.probabilities
                more = limits.one_sided(likely, rows, form.separated)
                bounds = np.minimum(bounds, most.overall + more)
            if of_pairs or form.pairs is not None:
                new, kept = simple_transitions.with_pairs(predicted, likely, bounds)
                new = noise.without_overlap(new, found.probabilities, self.task.weight)
                form = form._replace(pairs=kept)
            elif form.permutation is not None:
                likeliest = simple_transitions.fit_permutation(predicted, form.permutation)
                new = likeliest.matrix(most.overall)
            elif form.uniform:
                new = noise.uniform(min(self.rate(likely), most.overall), self.task.classes)
            else:
                new = noise.without_overlap(likely, found.probabilities, self.task.weight)
                new = limits.limited(new, bounds)
            moved, transition = np.abs(new - transition).max(), new
            if number == rounds - 1 or (moved < STILL and form.separated is not None):
                break
            found = self.pooled(logs_given, transition, found.pool)
        found = found._replace(transition=transition, form=form)
        return self._or_noisier(logs_given, found, most.overall)

    def _or_noisier(self, logs_given: LogsGiven, found: Estimate, most: float) -> Estimate:
        """Of rates that are about as likely, the one that the surest rows show.

        With few rows, less noise and less certain models explain the labels as well.
        """
        classes, least = self.task.classes, self.rate(found.transition)
        if least >= most - STILL / 2 and least >= most / 2:  # a rate may be small, and yet not zero
            return found
        likely = self.log_likelihood(found)
        for share in (1.0, 0.5):
            aim = least + share * (most - least)
            transition = noise.uniform(aim, classes)
            if least > STILL:
                transition = noise.with_rate(found.transition, aim / least)
                transition = limits.limited(transition, np.full(classes, aim))
            other = self.pooled(logs_given, transition, found.pool)
            if self.log_likelihood(other) > likely - ABOUT_AS_LIKELY:
                return other._replace(form=found.form)
        return found

    def _ceiling(self, found: Estimate) -> limits.Ceiling:
        return limits.ceiling(self._predicted(found.probabilities @ found.transition))

    def _predicted(self, probabilities: np.ndarray) -> Predicted:
        """Rows whose labels may be wrong."""
        task, noisy = self.task, self.noisy
        return Predicted(probabilities[noisy], task.label[noisy], task.weight[noisy])

    def _pairs_are_better(self, found: Estimate, by_pairs: Estimate) -> bool:
        """Whether the noise of most classes goes to a few others.

        There are many pairs, and some fit by chance. So most classes must have one, and labels of
        clear rows must be likelier, by `ABOUT_AS_LIKELY` for each pair. Other rows do not count:
        where classes overlap, pairs also explain the errors of the models.
        """
        pairs = by_pairs.form.pairs
        assert pairs is not None
        if pairs.any(axis=1).mean() <= 0.5:
            return False
        best = -np.sort(-found.probabilities, axis=1)[:, :2]
        clear = self.noisy & (best[:, 0] >= noise.DECIDED * best.sum(axis=1))
        gain = self._log_likelihoods(by_pairs) - self._log_likelihoods(found)
        least = ABOUT_AS_LIKELY * np.count_nonzero(pairs)
        return bool(self.task.weight[clear] @ gain[clear] > least)

    def _or_uniform(self, logs_given: LogsGiven, found: Estimate) -> Estimate:
        """One rate for all classes, if that is about as likely as what was found.

        The overall rate stays the same.
        """
        same = noise.uniform(self.rate(found.transition), self.task.classes)
        other = self.pooled(logs_given, same, found.pool)
        if self.log_likelihood(other) <= self.log_likelihood(found) - ABOUT_AS_LIKELY:
            return found
        return other._replace(form=found.form._replace(uniform=True))

    def _or_permutation(self, logs_given: LogsGiven, found: Estimate, rounds: int) -> Estimate:
        """A permutation, if its gain in log-likelihood exceeds its description length.

        The search begins with almost no noise, since from the matrix found it would not move. The
        permutation is then estimated again at the rate of that matrix.
        """
        task, rate = self.task, self.rate(found.transition)
        other = self.pooled(logs_given, noise.uniform(STILL, task.classes), found.pool)
        likeliest = simple_transitions.fit_permutation(self._predicted(other.probabilities))
        for _ in range(rounds):
            last = likeliest.permutation
            other = self.pooled(logs_given, likeliest.at_rate(rate).matrix(), other.pool)
            likeliest = simple_transitions.fit_permutation(self._predicted(other.probabilities))
            if (likeliest.permutation == last).all():
                break
        if likeliest.mutual():
            return found
        transition = likeliest.matrix(self._ceiling(other).overall)
        other = self.pooled(logs_given, transition, other.pool)
        gain = self.log_likelihood(other) - self.log_likelihood(found)
        predicted = self._predicted(found.probabilities)
        gain += simple_transitions.price_of_entries(predicted, found.transition)
        if gain <= likeliest.price(task.weight[self.noisy].sum()):
            return found
        form = found.form._replace(permutation=likeliest.permutation)
        return other._replace(form=form)

    def least_rate(self, logs_given: LogsGiven, found: Estimate) -> float:
        """The smallest share of wrong labels that explains them about as well; 0 if time is up.

        Where classes overlap, less noise and less certain models explain the labels as well as more
        noise and surer models. So models are pooled again at other rates. The log-likelihood falls
        with the square of the distance from its maximum, so its values at two rates tell where it
        has fallen too far: at the estimate, and at the lower end of a binomial interval. If little
        is lost there, the second rate is next to zero.
        """
        rate = self.rate(found.transition)
        if rate <= STILL or self.task.settings.is_over():
            return 0.0

        def likely(aim: float) -> float:
            transition = noise.with_rate(found.transition, aim / rate)
            return self.log_likelihood(self.pooled(logs_given, transition, found.pool))

        likeliest = likely(rate)
        rows = self.task.weight[self.noisy].sum()
        counted = limits.SIGMAS * np.sqrt(rate * (1 - rate) / rows)
        for step in (min(counted, rate - NEVER), rate - NEVER):
            value = likely(rate - step)
            likeliest = max(likeliest, value)
            lost = likeliest - value
            if lost > ABOUT_AS_LIKELY / 4:
                return max(0.0, float(rate - step * np.sqrt(ABOUT_AS_LIKELY / lost)))
        return 0.0

    def rate(self, transition: np.ndarray) -> float:
        """The share of noisy rows' labels that such noise makes wrong."""
        task, noisy = self.task, self.noisy
        return noise.rate(transition, task.label[noisy], task.weight[noisy])

    def log_likelihood(self, found: Estimate) -> float:
        """Of all given labels."""
        return float(self.task.weight @ self._log_likelihoods(found))

    def _log_likelihoods(self, found: Estimate) -> np.ndarray:
        total = (found.probabilities * self.likelihood(found.transition)).sum(axis=1)
        return np.log(total + noise.TINY)
