"""Every step of a run on a known problem, as NumPy arrays that `checks` can look at."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from untuned.data.batches import Batch
from untuned.problem.build import build
from untuned.solvers.dtfbo import DTFBO
from untuned.solvers.numerics.adagrad_norm import descend_for
from untuned.theory.constants import require_steps
from untuned_paper.theory.problems import KnownProblem


class Trajectory(NamedTuple):
    """T steps. Entry t of x and alpha is before step t, so they have T + 1; the others have T.

    D-TFBO: `y`, `v`, `beta`, `gamma` are y_t^{P_t}, v_t^{Q_t} and the accumulators where the
    sub-loops ended; `y_before` is where the sub-loop for y began.
    S-TFBO: `y`, `v` are y_t, v_t, before the step, and `beta`, `gamma` have T + 1 entries too.
    """

    x: np.ndarray
    y: np.ndarray
    v: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    gamma: np.ndarray
    y_before: np.ndarray
    inner_steps: np.ndarray
    linear_steps: np.ndarray
    evaluations: np.ndarray  # of this step, all oracles together

    @property
    def steps(self) -> int:
        return len(self.y)


def record(problem: KnownProblem, solver: Any, T: int) -> Trajectory:
    """Make T steps with the method's own `step` and keep all of them.

    The same steps as `untuned.minimize`, which stops where nothing moves any more; this goes on.
    """
    T = require_steps(T)
    if isinstance(solver, DTFBO) and solver.horizon is None:
        solver = dataclasses.replace(solver, horizon=T)
    built = build(problem.outer, problem.inner, problem.x0, problem.y0)
    ops, o = built.ops, built.oracles

    def step(state: Any, _: Any) -> tuple[Any, Any]:
        new, info = solver.step(o, state, Batch())
        return new, (new, info)

    def run(state: Any) -> Any:
        return ops.scan(step, state, None, T, False)[1]

    with built.precision():
        first = solver.init(o, built.x0, built.y0)
        states, info = ops.compile(run, first)(first)

        def all_of(name: str) -> np.ndarray:
            after = ops.to_numpy(getattr(states, name))
            return np.concatenate([ops.to_numpy(getattr(first, name))[None], after])

        x, y, v, alpha = (all_of(name) for name in ("x", "y", "v", "alpha"))
        info = info._replace(counts=sum(ops.to_numpy(count) for count in info.counts))
        P, Q, evaluations = (
            np.broadcast_to(ops.to_numpy(part), T)
            for part in (info.inner_steps, info.linear_steps, info.counts)
        )
        if isinstance(solver, DTFBO):
            beta = solver.eta_y / ops.to_numpy(info.step_y)
            gamma = solver.eta_v / ops.to_numpy(info.step_v)
            return Trajectory(x, y[1:], v[1:], alpha, beta, gamma, y[:-1], P, Q, evaluations)
        beta, gamma = all_of("beta"), all_of("gamma")
        return Trajectory(x, y[:-1], v[:-1], alpha, beta, gamma, y[:-1], P, Q, evaluations)


def inner_loop(problem: KnownProblem, solver: DTFBO, T: int, x: np.ndarray, y: np.ndarray) -> list:
    """beta_0 .. beta_P of one sub-loop for y, stepped one by one with the method's own descent."""
    built = build(problem.outer, problem.inner, x, y)
    threshold = (solver.c_y / require_steps(T)) ** 0.5
    betas, point = [solver.beta0], built.y0
    with built.precision():

        def descend(point: Any, beta: Any) -> Any:
            def gradient(_: Any, y: Any) -> Any:
                return built.oracles.inner_grad(built.x0, y, None)

            norm = built.ops.norm(gradient(0, point))
            return norm, descend_for(built.ops, gradient, point, beta, solver.eta_y, 1)

        one = built.ops.compile(descend, point, np.float64(1.0))
        while True:
            norm, moved = one(point, np.float64(betas[-1]))
            if not norm > threshold:
                return betas
            point = moved.point
            betas.append(float(moved.accumulator))
