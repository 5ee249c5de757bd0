"""Quadratic programs on torch by `untuned`, qpth and cvxpylayers in one process.

    python argmin_programs.py COUNT SIZE ROUNDS     one line of JSON; for argmin.py, which says how

Value and gradient in all six arrays, float64, one thread, processor time, all sides taking turns.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import cvxpy
import numpy as np
import torch
from cvxpylayers.torch import CvxpyLayer
from qpth.qp import QPFunction

import untuned


def made(count: int, size: int) -> list[torch.Tensor]:
    """Q, c, A, b, G, h with a point that keeps all conditions."""
    rng = np.random.default_rng(0)
    equal, unequal = size // 5, size + size // 2
    root = rng.standard_normal((count, size, size))
    Q = root @ root.swapaxes(1, 2) / size + 0.1 * np.eye(size)
    c, point = rng.standard_normal((2, count, size))
    A, G = rng.standard_normal((count, equal, size)), rng.standard_normal((count, unequal, size))
    b = (A @ point[..., None])[..., 0]
    h = (G @ point[..., None])[..., 0] + rng.uniform(0, 1, (count, unequal))
    return [torch.tensor(part) for part in (Q, c, A, b, G, h)]


def by_cvxpy(size: int) -> Callable:
    """The root of Q is its parameter, as the rules of cvxpy ask for."""
    equal, unequal = size // 5, size + size // 2
    y = cvxpy.Variable(size)
    root, A, G = (cvxpy.Parameter((rows, size)) for rows in (size, equal, unequal))
    c, b, h = (cvxpy.Parameter(rows) for rows in (size, equal, unequal))
    problem = cvxpy.Problem(
        cvxpy.Minimize(cvxpy.sum_squares(root @ y) / 2 + c @ y), [A @ y == b, G @ y <= h]
    )
    layer = CvxpyLayer(problem, [root, c, A, b, G, h], [y])

    def solve(Q: Any, *rest: Any) -> Any:
        how = {"eps": 1e-10, "acceleration_lookback": 0}
        return layer(torch.linalg.cholesky(Q).mT, *rest, solver_args=how)[0]

    return solve


def main() -> None:
    """Every side, with the largest relative distance of its gradients from ours."""
    torch.set_num_threads(1)
    count, size, rounds = (int(number) for number in sys.argv[1:])
    given = made(count, size)
    sides: dict[str, Callable] = {
        "ours": untuned.quadratic_program,
        "qpth": lambda Q, c, A, b, G, h: QPFunction(verbose=-1, eps=1e-14)(Q, c, G, h, A, b),
        "cvxpylayers": by_cvxpy(size),
    }
    gradients: dict[str, list[Any]] = {}
    times: dict[str, list[float]] = {name: [] for name in sides}

    def run(name: str) -> None:
        moving = [part.clone().requires_grad_() for part in given]
        loss = (sides[name](*moving) ** 2).sum()
        gradients[name] = list(torch.autograd.grad(loss, moving))
        Q = gradients[name][0]
        gradients[name][0] = (Q + Q.mT) / 2  # which of both halves moves is a choice

    for _ in range(1 + rounds):  # the first does not count
        for name in sides:
            start = time.process_time()
            run(name)
            times[name].append(time.process_time() - start)
    found = {name: min(measured[1:]) for name, measured in times.items()}
    for name in sides:
        found[f"{name} error"] = max(
            ((a - b).norm() / b.norm()).item()
            for a, b in zip(gradients[name], gradients["ours"], strict=True)
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
