"""What is made of a round's opinions: honest voices, their pool, and the noise of labels."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from untuned.estimators.cleaning import noise, one_other, pairs, pooling
from untuned.estimators.cleaning.few_numbers import FewNumbers
from untuned.estimators.cleaning.folds import Task
from untuned.estimators.cleaning.pooling import Pool
from untuned.run import minimize
from untuned.run.result import Result

STILL = 0.01  # change of the noise after which it is not asked for again

ABOUT_AS_LIKELY = 2.0  # logarithm of a likelihood; about a 95 % interval for one number
Voices = Callable[[np.ndarray], np.ndarray]  # what judges say of true labels, given the noise


class Settled(NamedTuple):
    """A pool, and the noise that goes with it."""

    pool: Pool
    taken_out: np.ndarray  # the noise with which the judges were pooled
    transition: np.ndarray
    probabilities: np.ndarray  # of true labels
    apart: np.ndarray | None = None  # how far classes are told apart, as `_apart` says
    pairs: np.ndarray | None = None  # True for pairs of classes with noise of their own
    other: np.ndarray | None = None  # the one class that each is taken for
    alike: bool = False  # whether as many labels go from every class to every other


class Hearing:
    """A task, and how pools and noise are learned about it."""

    def __init__(self, task: Task, options: dict[str, Any], ends: float):
        self.task = task
        self.options = options  # of `minimize`
        self.ends = ends
        # Who names a method gets that one; it need not be quick.
        self.for_pools = {"method": FewNumbers()} if options.get("method", "auto") == "auto" else {}
        self.noisy = ~task.trusted
        self.rank = np.argsort(task.order)
        drawn = np.random.default_rng(task.seed).permutation(len(task.label))
        self.half = drawn[self.rank] % 2 == 0

    def over(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() > self.ends

    def learn(self, *args: Any, **more: Any) -> Result:
        """`minimize` in what time is left."""
        left = None if self.ends == np.inf else max(self.ends - time.monotonic(), 1e-3)
        return minimize(*args, max_seconds=left, **(self.options | more))

    def likelihood(self, transition: np.ndarray) -> np.ndarray:
        """P(given label | true label j) of each row; of trusted ones, few are wrong."""
        return noise.likelihood(transition, self.task.label, self.task.trusted)

    def pool(
        self, voices: np.ndarray, likelihood: np.ndarray, start: np.ndarray | Pool,
        rows: Any = slice(None),
    ) -> Pool:  # fmt: skip
        """Weights and offsets, from all rows or some."""
        voices, likelihood = voices.swapaxes(1, 2), likelihood.T
        known = pooling.Rows(voices, likelihood, self.task.weight[rows], self.half[rows])
        solve = partial(self.learn, **self.for_pools)
        return pooling.learn(pooling.some(known, np.argsort(self.rank[rows])), start, solve)

    def settle(
        self, voices_given: Voices, transition: np.ndarray, judges: int, rounds: int,
        before: Settled | None = None,
    ) -> Settled:  # fmt: skip
        """The pool and the noise that go together; `before` is what was settled the last time.

        Noise of few pairs of classes is tried as well, noise that is the same for all of them, and
        noise that takes each class for one other.
        """
        start = self.pooled(voices_given, transition, np.full(judges, 1 / judges))
        if before is not None:
            return self._settled(voices_given, start, rounds, before)
        found = self._settled(voices_given, start, rounds)
        if self.task.classes == 2:  # all noise is of pairs
            return found
        other = self._settled(voices_given, start, rounds, of_pairs=True)
        if self._of_pairs_indeed(found, other):
            return other
        found = self._simplest(voices_given, found)
        return found if found.alike else self._of_one_other(voices_given, found, rounds)

    def _settled(
        self, voices_given: Voices, found: Settled, rounds: int,
        before: Settled | None = None, of_pairs: bool = False,
    ) -> Settled:  # fmt: skip
        """The pool and the noise that go together, in turns.

        Likelihood alone does not tell noise from overlapping classes: so noise is never more than
        what is seen where judges are surest. More noise in one class than in all is believed only
        as far as it is one-sided, the class' rows are decided once it is taken out, and so are the
        rows of the class it goes to: of two classes that no judge tells apart, all rows may be put
        down to either.
        """
        apart = None if before is None else before.apart
        of_pairs = of_pairs or (before is not None and before.pairs is not None)
        alike = before is not None and before.alike
        kept, transition = None, found.transition
        for number in range(rounds):
            most = self._ceiling(found)
            if apart is None and number == 1:
                apart = self._apart(found)
            likely = self.noise_of(found.probabilities, transition)
            rows, limits = self.task.weight @ found.probabilities, most.by_class
            if apart is not None:
                limits = np.minimum(limits, most.overall + noise.one_sided(likely, rows, apart))
            if of_pairs:
                new, kept = self._of_pairs(found.probabilities, likely, limits)
            elif before is not None and before.other is not None:
                likeliest = one_other.fit(self._rows(found.probabilities), before.other)
                new = likeliest.matrix(most.overall)
            elif alike:
                new = noise.uniform(min(self.rate(likely), most.overall), self.task.classes)
            else:
                new = noise.without_overlap(likely, found.probabilities, self.task.weight)
                new = noise.limited(new, limits)
            moved, transition = np.abs(new - transition).max(), new
            if number == rounds - 1 or (moved < STILL and apart is not None):
                break
            found = self.pooled(voices_given, transition, found.pool)
        assert apart is not None  # as there are two rounds at least
        found = found._replace(transition=transition, apart=apart, pairs=kept, alike=alike)
        return self._noisiest(voices_given, found, most.overall)

    def _ceiling(self, found: Settled) -> noise.Ceiling:
        task, noisy = self.task, self.noisy
        of_given = found.probabilities @ found.transition
        return noise.ceiling(of_given[noisy], task.label[noisy], task.weight[noisy])

    def _apart(self, found: Settled) -> np.ndarray:
        """Entry [j, k]: 1 if most rows taken for k are clearly k, were j the only other class.

        On the diagonal against all other classes, and in proportion where these rows are fewer than
        half: near there, chance would decide.
        """
        said, weight, classes = found.probabilities, self.task.weight, self.task.classes
        best, clear = said.argmax(axis=1), np.zeros((classes, classes))
        for each in np.unique(best):
            rows = best == each
            own, others = said[rows, each, None], said[rows]
            others[:, each] = 1 - others[:, each]
            is_clear = own >= noise.DECIDED * (own + others)
            clear[:, each] = np.average(is_clear, axis=0, weights=weight[rows])
        apart = (clear > 0.5).astype(float)
        np.fill_diagonal(apart, np.minimum(2 * np.diagonal(clear), 1))
        return apart

    def noise_of(self, probabilities: np.ndarray, start: np.ndarray) -> np.ndarray:
        """The most likely noise."""
        return noise.fit_transition(*self._rows(probabilities), start)

    def _of_pairs(
        self, probabilities: np.ndarray, likely: np.ndarray, most: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        found, kept = pairs.with_pairs(self._rows(probabilities), likely, most)
        return noise.without_overlap(found, probabilities, self.task.weight), kept

    def _rows(self, probabilities: np.ndarray) -> pairs.Rows:
        task, noisy = self.task, self.noisy
        return pairs.Rows(probabilities[noisy], task.label[noisy], task.weight[noisy])

    def _of_pairs_indeed(self, found: Settled, other: Settled) -> bool:
        """Whether the noise is of pairs, as `other` says, and not as `found` does.

        Chance finds some pairs among the many that there are: most classes must have one. And
        labels of clear rows must be likelier, by as much for each pair as tells two numbers apart.
        Those of other rows may be so where classes overlap, as pairs also make up for what judges
        are wrong about.
        """
        assert other.pairs is not None
        if other.pairs.any(axis=1).mean() <= 0.5:
            return False
        best = -np.sort(-found.probabilities, axis=1)[:, :2]
        clear = self.noisy & (best[:, 0] >= noise.DECIDED * best.sum(axis=1))
        gain = self._likelihoods(other) - self._likelihoods(found)
        least = ABOUT_AS_LIKELY * np.count_nonzero(other.pairs)
        return bool(self.task.weight[clear] @ gain[clear] > least)

    def pooled(
        self, voices_given: Voices, transition: np.ndarray, start: np.ndarray | Pool
    ) -> Settled:
        voices, likelihood = voices_given(transition), self.likelihood(transition)
        pool = self.pool(voices, likelihood, start)
        return Settled(pool, transition, transition, pool.probabilities(voices))

    def _noisiest(self, voices_given: Voices, found: Settled, most: float) -> Settled:
        """Of noises that are about as likely, the one that is seen on the surest rows.

        Few rows do not tell hesitant judges of right labels from sure judges of noisy ones.
        """
        task, least = self.task, self.rate(found.transition)
        if least >= most - STILL / 2 and least >= most / 2:  # a rate may be small, and yet not zero
            return found
        likely = self.likelihood_of(found)
        for way in (1.0, 0.5):
            aim = least + way * (most - least)
            if least > STILL:
                transition = noise.with_rate(found.transition, aim / least)
                transition = noise.limited(transition, np.full(task.classes, aim))
            else:
                transition = noise.uniform(aim, task.classes)
            other = self.pooled(voices_given, transition, found.pool)
            if self.likelihood_of(other) > likely - ABOUT_AS_LIKELY:
                return other._replace(
                    apart=found.apart, pairs=found.pairs, other=found.other, alike=found.alike
                )
        return found

    def _simplest(self, voices_given: Voices, found: Settled) -> Settled:
        """The same noise in all classes, if that is about as likely as what was found.

        Entries of a matrix also make up for what judges are wrong about, so they must be worth
        something. At the same rate: a lower one is as likely for any noise, where judges know it.
        """
        same = noise.uniform(self.rate(found.transition), self.task.classes)
        alike = self.pooled(voices_given, same, found.pool)
        if self.likelihood_of(alike) <= self.likelihood_of(found) - ABOUT_AS_LIKELY:
            return found
        return alike._replace(apart=found.apart, alike=True)

    def _of_one_other(self, voices_given: Voices, found: Settled, rounds: int) -> Settled:
        """Noise that takes each class for one other, if it explains more than it takes to name it.

        The search begins where judges are believed as they are, not at a matrix that was found: it
        would stay there. Which classes these are is then asked again at the matrix' own rate.
        """
        task, rate = self.task, self.rate(found.transition)
        other = self.pooled(voices_given, noise.uniform(STILL, task.classes), found.pool)
        likeliest = one_other.fit(self._rows(other.probabilities))
        for _ in range(rounds):
            last, shares = likeliest.other, likeliest.to_it + likeliest.to_any
            to_it, to_any = (rate / shares * each for each in likeliest[1:])
            noisy = one_other.OneOther(last, to_it, to_any)
            other = self.pooled(voices_given, noisy.matrix(), other.pool)
            likeliest = one_other.fit(self._rows(other.probabilities))
            if (likeliest.other == last).all():
                break
        if likeliest.mutual():
            return found
        transition = likeliest.matrix(self._ceiling(other).overall)
        other = self.pooled(voices_given, transition, other.pool)
        gain = self.likelihood_of(other) - self.likelihood_of(found)
        saved = one_other.price_of_entries(self._rows(found.probabilities), found.transition)
        if gain + saved <= likeliest.price(task.weight[self.noisy].sum()):
            return found
        return other._replace(apart=found.apart, other=likeliest.other)

    def rate(self, transition: np.ndarray) -> float:
        """The share of noisy rows' labels that such noise makes wrong."""
        task, noisy = self.task, self.noisy
        return noise.rate(transition, task.label[noisy], task.weight[noisy])

    def likelihood_of(self, found: Settled) -> float:
        return float(self.task.weight @ self._likelihoods(found))

    def _likelihoods(self, found: Settled) -> np.ndarray:
        """The logarithm of each row's."""
        total = (found.probabilities * self.likelihood(found.transition)).sum(axis=1)
        return np.log(total + noise.TINY)
