"""What `auto` and the criterion of prototypes are made of: A_T on Split MNIST, part by part.

    python benchmarks/coreset_criteria.py --seeds 20 30                 # the parts of `auto`
    python benchmarks/coreset_criteria.py --seeds 20 24 --part steps    # steps before the pick
    python benchmarks/coreset_criteria.py --seeds 0 3 --part gcr        # why GCR is below uniform
    python benchmarks/coreset_criteria.py --seeds 0 3 --part gcr --memory 500

Every line is made from the same streams, first weights and orders, so lines are compared seed by
seed. docs/lab/coresets.md has the tables.
"""

from __future__ import annotations

import argparse
from typing import Any
from unittest import mock

import numpy as np
import torch

from untuned.coreset.baselines import Selection, equal_quotas, in_turns
from untuned.coreset.selectors import prototypes, registry, slots
from untuned.coreset.selectors.candidates import Candidates
from untuned.coreset.selectors.matching import gcr
from untuned.coreset.selectors.prototypes import herd_towards, kernel_of
from untuned.solvers import DTFBO
from untuned_paper.continual import learner, protocols, scores, streams
from untuned_paper.continual.protocols import ROWS, Row

PARTS = {
    "auto": ("auto", "means", "classifier", "coverage", "weighted_means", "greedy-coreset"),
    "steps": ("drawn_0", "drawn_10", "drawn_100", "drawn_400", "picked_0", "picked_100",
              "exchanged_0"),
    "gcr": ("uniform-per-class", "icarl", "gcr", "gcr_even", "gcr_right", "gcr_unlearned"),
}  # fmt: skip
WEIGHTED = ("weighted_means", "gcr_even", "gcr_right", "gcr_unlearned")


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


def gcr_even(c: Candidates, size: int) -> Selection:
    """GCR's rows, all of the same weight."""
    return gcr(c, size)[0], np.ones(size)


def gcr_right(c: Candidates, size: int) -> Selection:
    """GCR among the rows that the network has right."""
    logits = c.features @ c.head.coef + c.head.intercept
    known = np.flatnonzero(logits.argmax(axis=1) == c.label)
    if len(known) < size:
        return gcr(c, size)
    share = c.share[known] / c.share[known].sum()
    among = Candidates(c.X[known], c.label[known], c.classes, share, c.model, c.rng)
    rows, weights = gcr(among, size)
    return known[rows], weights


def gcr_unlearned(c: Candidates, size: int) -> Selection:
    """GCR with the gradients of a last layer of zeros: what is learned keeps its gradient."""
    layer = c.head._replace(
        coef=np.zeros_like(c.head.coef), intercept=np.zeros_like(c.head.intercept)
    )
    c.__dict__["head"] = layer  # the cached property, before anything has asked for residuals
    return gcr(c, size)


def a_t(name: str, seed: int, imbalanced: bool, memory: int, balance: str | None) -> float:
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
    protocol = protocols.Epochs(memory=memory)
    found = learner.learn(stream, selector, protocol, seed, options, balance=balance)
    return 100 * scores.average_accuracy(found.accuracy)


def main() -> None:
    """Print one line per part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs=2, default=(20, 30), metavar=("FIRST", "END"))
    parser.add_argument("--part", choices=PARTS, default="auto")
    parser.add_argument("--memory", type=int, default=protocols.Epochs().memory, metavar="ROWS")
    parser.add_argument("--per-class", action="store_true", help="equal numbers of each class")
    given = parser.parse_args()
    torch.set_num_threads(1)
    balance = "class" if given.per_class else None
    for name in PARTS[given.part]:
        words = []
        for imbalanced in (False, True):
            found = [
                a_t(name, seed, imbalanced, given.memory, balance) for seed in range(*given.seeds)
            ]
            error = np.std(found, ddof=1) / np.sqrt(len(found))
            words.append(f"{np.mean(found):.2f} ± {error:.2f}  {np.round(found, 1).tolist()}")
        print(f"{name:16}", *words, sep="  ", flush=True)


if __name__ == "__main__":
    main()
