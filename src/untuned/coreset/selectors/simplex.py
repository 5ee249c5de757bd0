"""The paper's problem, by methods of `untuned.minimize`: BCSR, S-TFBO, D-TFBO.

    g(theta, lambda) = sum_i lambda_i l_i(theta) + penalty       lambda on the simplex
    f(theta, lambda) = sum_i share_i l_i(theta) + C R(lambda)
    R(lambda) = -E_z sum of the K largest entries of lambda + delta z

from lambda = 1/n and the model as it is. Each gives lambda, by which rows are then drawn. The
noise z is drawn once per selection: an optimizer sees one function, whose gradient in lambda_i is
exactly minus the share of draws in which i is among the K largest.

`criterion="prototypes"` gives the same methods another problem, that of slots.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from untuned.coreset.selectors import proxies, slots
from untuned.coreset.selectors.candidates import Candidates
from untuned.run import minimize
from untuned.solvers import DTFBO, STFBO, StocBiO
from untuned.util.wording import unknown

# The criterion for lambda, and how many steps it is given where the user names no number: as many
# as in BCSR's and the paper's experiments, or enough for the likeliest rows to stand.
CRITERIA = {"loss": 5, "prototypes": 100}

DRAWS = 64
STRENGTH = 0.1  # C
SMOOTHING = 1e-3  # delta
START = 5.0  # alpha_0 = beta_0 = gamma_0 of the paper's experiment, and BCSR's learning rates


class Weighted(NamedTuple):
    """lambda over all rows, and the slots that it falls into where the criterion is prototypes."""

    weights: np.ndarray
    slots: slots.Slots | None = None


def s_tfbo(
    c: Candidates, size: int, *, start: float = START, per_row: bool = False, **problem: Any
) -> Weighted:
    """S-TFBO: one step on theta, v and lambda together."""
    start = _in_units_of_g(start, per_row, c)
    return weights(c, size, STFBO(start, start, start), **problem)


def d_tfbo(
    c: Candidates, size: int, *, start: float = START, per_row: bool = False, inner_steps: int = 5,
    linear_steps: int = 3, **problem: Any,
) -> Weighted:  # fmt: skip
    """D-TFBO with loops of fixed length (appendix B of the paper)."""
    start = _in_units_of_g(start, per_row, c)
    method = DTFBO(start, start, start, inner_steps=inner_steps, linear_steps=linear_steps)
    return weights(c, size, method, **problem)


def _in_units_of_g(start: float, per_row: bool, c: Candidates) -> float:
    """Public code takes the mean over rows for g, so that its start values are 1/n of ours."""
    return start * len(c) if per_row else start


def bcsr(
    c: Candidates, size: int, *, start: float = START, inner_steps: int = 1, linear_steps: int = 3,
    **problem: Any,
) -> Weighted:  # fmt: skip
    """BCSR: gradient steps on theta, a Neumann series for v; `start` is both learning rates.

    Its inner objective is g / n, so theta moves by start / n along the gradient of g. Its series
    lacks the factor start, so that equal learning rates move lambda by one hypergradient.
    """
    rate = start / len(c)
    method = StocBiO(rate, rate, inner_steps=inner_steps, linear_steps=linear_steps)
    return weights(c, size, method, **problem)


def weights(
    c: Candidates, size: int, method: Any, *, criterion: str = "loss", proxy: str = "head",
    steps: int | None = None, strength: float = STRENGTH, smoothing: float = SMOOTHING,
    solved: bool = False,
) -> Weighted:  # fmt: skip
    """lambda after `steps`; `solved` begins with the model that is best at lambda = 1/n.

    Of the options only `steps` concerns the criterion "prototypes".
    """
    if criterion not in CRITERIA:
        raise unknown("criterion", criterion, CRITERIA)
    steps = CRITERIA[criterion] if steps is None else steps
    if criterion == "prototypes":
        dealt = slots.deal(c, size)
        return Weighted(dealt.over_rows(slots.solved(dealt, c, method, steps), len(c)), dealt)
    model = proxies.get(proxy, c)
    share, z = model.tensor(c.share), model.tensor(c.rng.standard_normal((DRAWS, len(c))))

    def outer(x: Any, y: Any, rows: Any) -> Any:
        return share @ model.losses(y, rows) + strength * smoothed_top_k(x, size, smoothing * z)

    def inner(x: Any, y: Any, rows: Any) -> Any:
        return x @ model.losses(y, rows) + model.penalty(y)

    x0 = torch.full_like(share, 1 / len(c))
    y0 = proxies.solved(model, x0) if solved else model.start
    result = minimize(
        outer, inner, x0, y0, outer_data=model.rows, inner_data=model.rows, method=method,
        max_steps=steps, constraint="simplex", eval_every=steps,
    )  # fmt: skip
    # A method that diverged has no last point, so its best one is used.
    last = result.state.x
    found = last if bool(torch.isfinite(last).all()) else result.x
    return Weighted(found.double().cpu().numpy())


def smoothed_top_k(x: Any, size: int, noise: Any) -> Any:
    """R at x, a mean over draws of noise; torch knows its gradient."""
    return -torch.topk(x + noise, size, dim=1).values.sum(dim=1).mean()
