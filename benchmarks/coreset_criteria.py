"""What `auto` and the criterion of prototypes are made of: A_T on Split MNIST, part by part.

    python benchmarks/coreset_criteria.py --seeds 20 30                 # the parts of `auto`
    python benchmarks/coreset_criteria.py --seeds 20 24 --steps         # steps before the pick

Every line is made from the same streams, first weights and orders, so lines are compared seed by
seed. docs/lab/coresets.md has the tables.
"""

from __future__ import annotations

import argparse
from typing import Any
from unittest import mock

import numpy as np
import torch

from untuned.coreset.baselines import Selection, equal_quotas
from untuned.coreset.selectors import prototypes, registry, slots
from untuned.coreset.selectors.candidates import Candidates
from untuned.coreset.selectors.matching import in_turns
from untuned.coreset.selectors.prototypes import herd_towards, kernel_of
from untuned.experiments.continual import learner, protocols, scores, streams
from untuned.experiments.continual.protocols import ROWS, Row
from untuned.solvers import DTFBO

PARTS = ("auto", "means", "classifier", "coverage", "weighted_means", "greedy-coreset")
STEPS = tuple(f"{how}_{steps}" for how, steps in
              (("drawn", 0), ("drawn", 10), ("drawn", 100), ("drawn", 400), ("picked", 0),
               ("picked", 100), ("exchanged", 0)))  # fmt: skip
WEIGHTED = ("weighted_means",)


def means(c: Candidates, size: int) -> Selection:
    """`auto` without its classifier: herding."""
    members = sorted(c.members(), key=len)
    return in_turns([m[_herded(c, m, min(len(m), size))] for m in members], size), np.ones(size)


def _herded(c: Candidates, m: np.ndarray, count: int) -> np.ndarray:
    kernel = kernel_of(c, m)
    return herd_towards(kernel, kernel @ (c.share[m] / c.share[m].sum()), count)


def classifier(c: Candidates, size: int) -> Selection:
    """`auto` without its prototypes."""
    none = mock.patch.object(
        prototypes.Prototype, "losses", lambda own: np.where(own.taken, np.inf, 0.0)
    )
    with none:
        return prototypes.auto(c, size)


def coverage(c: Candidates, size: int) -> Selection:
    """Rows from which any function of the kernel's prior is best predicted on their class."""

    def order(m: np.ndarray) -> np.ndarray:
        left = kernel_of(c, m)  # covariances given the rows chosen
        ridge = prototypes.RIDGE * np.trace(left) / len(left)
        chosen: list[int] = []
        for _ in range(min(len(m), size)):
            gain = np.square(left).sum(axis=0) / (np.diagonal(left) + ridge)
            gain[chosen] = -np.inf
            chosen.append(int(np.argmax(gain)))
            column = left[:, chosen[-1]].copy()
            left -= np.outer(column, column) / (column[chosen[-1]] + ridge)
        return m[chosen]

    return in_turns([order(m) for m in sorted(c.members(), key=len)], size), np.ones(size)


def weighted_means(c: Candidates, size: int) -> Selection:
    """Herding's rows, with nonnegative weights whose mean is nearest to that of the class."""
    from scipy import optimize

    members, orders, weight = sorted(c.members(), key=len), [], np.zeros(len(c))
    for m, count in zip(members, equal_quotas([len(m) for m in members], size), strict=True):
        kernel, chosen = kernel_of(c, m), _herded(c, m, count)
        towards = (kernel @ (c.share[m] / c.share[m].sum()))[chosen]
        root = np.linalg.cholesky(kernel[np.ix_(chosen, chosen)] + 1e-9 * np.eye(count))
        found = optimize.nnls(root.T, np.linalg.solve(root, towards))[0]
        weight[m[chosen]] = found / found.sum()
        orders.append(m[chosen])
    order = in_turns(orders, size)
    return order, weight[order]


def after_steps(c: Candidates, size: int, *, how: str, steps: int) -> Selection:
    """The problem of prototypes after steps of D-TFBO: drawn, picked, or picked and exchanged."""
    dealt = slots.deal(c, size)
    x = dealt.start(c.share)
    if steps:
        method = DTFBO(5.0, 5.0, 5.0, inner_steps=5, linear_steps=3)
        x = slots.solved(dealt, c, method, steps)
    if how == "drawn":
        x = np.array([c.rng.multinomial(1, row / row.sum()) for row in x], float)
    rows, weights = slots.pick(dealt, dealt.over_rows(x, len(c)))
    while how == "exchanged":  # until a pass over the slots changes nothing
        taken = np.isin(dealt.rows, rows) & dealt.filled
        again, weights = slots.pick(dealt, dealt.over_rows(taken.astype(float), len(c)))
        if set(again) == set(rows):
            break
        rows = again
    return rows, weights


def a_t(name: str, seed: int, imbalanced: bool) -> float:
    """A_T of one run of Split MNIST, in percent."""
    how, _, steps = name.partition("_")
    options: dict[str, Any] = {}
    selector = name
    if steps.isdigit():
        selector, options = "after_steps", {"how": how, "steps": int(steps)}
    if selector not in registry.SELECTORS:
        registry.SELECTORS[selector] = f"{__name__}:{selector}"
    ROWS.setdefault(selector, Row(selector, weighted=name in WEIGHTED))
    stream = streams.get("split-mnist", imbalanced, seed)
    found = learner.learn(stream, selector, protocols.Epochs(), seed, options)
    return 100 * scores.average_accuracy(found.accuracy)


def main() -> None:
    """Print one line per part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs=2, default=(20, 30), metavar=("FIRST", "END"))
    parser.add_argument("--steps", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in STEPS if given.steps else PARTS:
        words = []
        for imbalanced in (False, True):
            found = [a_t(name, seed, imbalanced) for seed in range(*given.seeds)]
            error = np.std(found, ddof=1) / np.sqrt(len(found))
            words.append(f"{np.mean(found):.2f} ± {error:.2f}  {np.round(found, 1).tolist()}")
        print(f"{name:16}", *words, sep="  ", flush=True)


if __name__ == "__main__":
    main()
