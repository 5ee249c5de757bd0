"""From judges to verdicts, in two rounds.

1. Judges learn the labels as they were given, cheap judges first. What they say of unseen rows is
   pooled, and tells how labels come to be wrong: a first guess from rows of which they are sure,
   then by maximum likelihood. A judge whose weight in the pool is zero is not asked again.
   Boosting, which is dear, is asked if a trial on some rows shows that it helps.
2. Judges learn what labels probably should be. What they now say of unseen rows is pooled with what
   was said before, the noise is estimated anew, and Bayes' rule gives the quality of each label.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from untuned.estimators.cleaning import folds, judges, noise, pooling, trial
from untuned.estimators.cleaning.first_round import first_round
from untuned.estimators.cleaning.folds import Task
from untuned.estimators.cleaning.forest import Trees
from untuned.estimators.cleaning.hearing import Hearing, Settled
from untuned.estimators.cleaning.judges import Judge
from untuned.estimators.cleaning.labelled_rows import Merged, Table
from untuned.estimators.cleaning.least_rate import least_rate
from untuned.estimators.cleaning.linear_judge import LinearJudge, as_evidence
from untuned.estimators.cleaning.neighbours import Neighbours
from untuned.estimators.cleaning.pooling import Pool
from untuned.estimators.cleaning.problem import numbers
from untuned.util.wording import brief

NAMED: dict[str, Any] = {
    "linear": LinearJudge,
    "neighbours": Neighbours,
    "trees": Trees,
    "boosting": judges.boosting,
}
YOURS = "pred_probs"
POOLINGS = 2  # of the second round, at most: weights and noise, each given the other


class Verdicts(NamedTuple):
    """What the rounds found, per row of the task where there is one."""

    probabilities: np.ndarray  # of true labels, from judges that have not seen the row
    transition: np.ndarray
    least_rate: float  # of wrong labels that is about as likely as the transition's
    pool: Pool  # of all that was said
    weights: dict[str, float]  # of all that were asked
    evidence: np.ndarray  # for the labels, from which judges of the second round learned
    trust: tuple[float, float]  # slope and offset, by which evidence became a weight
    heard: list[Judge]  # those of the second round
    speaking: Pool | None  # of the second round's judges alone, for new rows
    linear: LinearJudge | None

    def scores(self, X: Any) -> np.ndarray:
        """Logarithms of probabilities of new rows, but for a constant in each."""
        assert self.speaking is not None
        said = zip(self.heard, self.speaking.weights, strict=True)
        voices = [
            weight * pooling.voice(judge.probabilities(X)) for judge, weight in said if weight > 0
        ]
        return sum(voices) + self.speaking.offsets


def judges_named(judge: Any) -> list[Judge]:
    """The judges a user asks for."""
    if isinstance(judge, str) and judge == "auto":
        return []
    several = judge if isinstance(judge, list | tuple) else [judge]
    if not several:
        raise ValueError("judge=[] names nobody; give at least one judge, or 'auto'.")
    found: list[Judge] = []
    for each in several:
        if isinstance(each, str) and each in NAMED:
            found.append(NAMED[each]())
        elif not isinstance(each, str | type) and hasattr(each, "fit"):
            if not hasattr(each, "predict_proba"):
                raise ValueError(
                    f"judge={brief(each)} has no predict_proba; give a classifier that has it, "
                    "e.g. by sklearn.calibration.CalibratedClassifierCV."
                )
            found.append(judges.of_user(each))
        else:
            raise ValueError(
                f"judge={brief(each)} is no judge; give 'auto', 'linear', a classifier of "
                f"scikit-learn's kind, or a list of these and of {brief(list(NAMED))}."
            )
    names = [each.name for each in found]
    for number, each in enumerate(found):  # so that none is lost in judges_
        if names[:number].count(each.name):
            each.name = f"{each.name} {names[:number].count(each.name) + 1}"
    return found


def task_of(table: Table, merged: Merged, classes: int, count: Any, rng: Any) -> Task:
    """The rows that are judged, with their folds; `count` of them, or as many as pay."""
    order, label = merged.order, table.label[merged.first]
    stay = np.array_equal(merged.first, np.arange(table.X.shape[0]))
    X = table.X if stay else table.X[merged.first]
    if count == "auto":
        count = folds.as_many_as_pay(X, classes)
    count = max(2, min(count, len(np.unique(merged.group))))
    fold = np.empty(len(label), int)
    fold[order] = folds.deal(merged.group[order], label[order], count, rng)
    return Task(
        X, label, merged.weight, table.trusted[merged.first], fold, count,
        classes, int(rng.randint(2**31 - 1)), order,
    )  # fmt: skip


def hear_yours(
    P: np.ndarray, given: np.ndarray, weight: np.ndarray, classes: int, seed: int,
    options: dict[str, Any], ends: float,
) -> Verdicts:  # fmt: skip
    """Verdicts from a user's probabilities alone."""
    nobody, one = np.zeros(len(given), bool), np.zeros(len(given), int)
    task = Task(None, given, weight, nobody, one, 1, classes, seed, np.arange(len(given)))
    hearing = Hearing(task, options, ends)
    heard = first_round(hearing, [P[None]])
    first = heard.settled
    honest = heard.calibrations[0].probabilities(pooling.voice(P)[None])

    def voices_given(transition: np.ndarray) -> np.ndarray:
        return pooling.voice(noise.without_noise(honest, transition))[None]

    weights = {YOURS: float(first.pool.weights[0])}
    return Verdicts(
        first.probabilities, first.transition, least_rate(hearing, voices_given, first),
        first.pool, weights,
        as_evidence(_quality(first, task)), (1.0, 0.0), [], None, None,
    )  # fmt: skip


def hear(
    task: Task, asked: list[Judge], options: dict[str, Any], automatic: bool, ends: float,
    yours: np.ndarray | None,
) -> Verdicts:  # fmt: skip
    """Both rounds; `yours` are probabilities that a user brought along."""
    hearing = Hearing(task, options, ends)
    if automatic:
        asked = [LinearJudge()] if issparse(task.X) else [LinearJudge(), Neighbours()]
    asked, opinions = _asked_first(hearing, asked, automatic)
    heard_first = first_round(hearing, opinions)
    first = heard_first.settled
    cache: dict[int, np.ndarray] = {}

    def targets(fold: int) -> np.ndarray:
        if fold in cache:
            return cache[fold]
        found = heard_first.targets(hearing, fold).astype(np.float32)
        if not issparse(task.X):  # there, mostly one judge asks, and memory is scarce
            cache[fold] = found
        return found

    heard: list[Judge] = []
    said: list[np.ndarray] = []
    for judge, weight in zip(asked, first.pool.weights, strict=True):
        if isinstance(judge, LinearJudge):
            judge.transition = first.transition
        if weight > 0 and (not heard or not hearing.over()):
            heard.append(judge)
            said.append(judge.second(task, targets))
        elif isinstance(judge, LinearJudge):
            judge.unheard(task, targets)
    weights = {judge.name: 0.0 for judge in asked}
    if automatic and not issparse(task.X):
        weights |= {judges.boosting().name: 0.0}  # it was tried
    said.append(first.probabilities)
    if yours is not None:
        said.append(_without_noise(hearing, yours, first.transition))
    voices = np.stack([pooling.voice(each) for each in said])
    settled = hearing.settle(lambda _: voices, first.transition, len(voices), POOLINGS, first)
    pool, transition = settled.pool, settled.transition
    weights |= _shares(pool, asked, heard, first, yours is not None)
    alone = voices[: len(heard)]
    speaking = hearing.pool(alone, hearing.likelihood(transition), np.ones(len(alone)))
    linears = [judge for judge in asked if isinstance(judge, LinearJudge)]
    learned = numbers(linears[0].x) if linears else None
    trust = (learned.slope, learned.offset) if learned else (1.0, 0.0)
    for judge in {*heard, *linears}:
        judge.forget()
    return Verdicts(
        settled.probabilities, transition, least_rate(hearing, lambda _: voices, settled),
        pool, weights, as_evidence(_quality(first, task)), trust, heard, speaking,
        linears[0] if linears else None,
    )  # fmt: skip


def _asked_first(
    hearing: Hearing, asked: list[Judge], automatic: bool
) -> tuple[list[Judge], list[np.ndarray]]:
    """Who was asked in the first round, and what was said."""
    opinions: list[np.ndarray] = []
    for judge in asked:
        if isinstance(judge, LinearJudge):
            judge.learn = hearing.learn
        if not opinions or not hearing.over():
            opinions.append(judge.first(hearing.task))
    asked = asked[: len(opinions)]
    if not automatic:
        return asked, opinions
    more: list[Judge] = []
    sparse = issparse(hearing.task.X)
    # On sparse columns trees are slow, and mostly no match for a linear judge; boosting takes none.
    if not hearing.over() and (not sparse or trial.trees_help(hearing, opinions)):
        more.append(Trees())
        opinions.append(more[-1].first(hearing.task))
    if not hearing.over() and not sparse and trial.boosting_helps(hearing, opinions):
        more.append(judges.boosting())
        opinions.append(more[-1].first(hearing.task))
    return [*asked, *more], opinions


def _shares(
    pool: Pool, asked: list[Judge], heard: list[Judge], first: Settled, yours: bool
) -> dict[str, float]:
    """The weight of each judge: its own, and its share of what was said in the first round."""
    weights = {judge.name: float(w) for judge, w in zip(heard, pool.weights, strict=False)}
    before = pool.weights[len(heard)]
    for judge, weight in zip(asked, first.pool.weights, strict=True):
        weights[judge.name] = weights.get(judge.name, 0.0) + float(before * weight)
    return weights | ({YOURS: float(pool.weights[-1])} if yours else {})


def _without_noise(hearing: Hearing, said: np.ndarray, transition: np.ndarray) -> np.ndarray:
    """Probabilities of true labels from a judge that learned given ones."""
    task = hearing.task
    voice = pooling.voice(said)[None]
    honest = hearing.pool(voice, np.eye(task.classes)[task.label], np.ones(1))
    return noise.without_noise(honest.probabilities(voice), transition)


def _quality(first: Settled, task: Task) -> np.ndarray:
    posterior = noise.posterior(first.probabilities, first.transition, task.label)
    return np.where(task.trusted, 1.0, posterior[np.arange(len(task.label)), task.label])
