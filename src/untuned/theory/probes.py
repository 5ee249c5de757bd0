"""`estimate`: probes of the constants of a user's own problem, and what the theorems then promise.

Largest values over sampled points are at most the true suprema, so every constant here is an
estimate from below (mu from above), and what the theorems promise with it is a guess.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from untuned.ops import Tree
from untuned.problem.build import Problem, build
from untuned.problem.flat import FlatProblem
from untuned.solvers.dtfbo import DTFBO
from untuned.solvers.stfbo import STFBO
from untuned.theory import double_loop, single_loop
from untuned.theory.constants import MEANING, Constants
from untuned.util.wording import brief

POWER_STEPS = 8  # of a power iteration; a few percent is enough for an estimate


class _Probed(FlatProblem):
    """A flat problem, with the derivatives of g that only the constants need."""

    def __init__(self, problem: Problem):
        super().__init__(problem)
        o, x, y = problem.oracles, problem.x0, problem.y0

        def gradients(x: Tree, y: Tree, data: Any) -> tuple:
            return o.inner_grads(x, y, data.inner)

        def second(x: Tree, y: Tree, v: Tree, data: Any) -> tuple:
            inner = o.inner(x, y, v, data.inner)
            return inner.cross, inner.hvp

        self._gradients = problem.ops.compile(gradients, x, y, problem.data)
        self._second = problem.ops.compile(second, x, y, y, problem.data)

    def gradients(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """grad_x g and grad_y g."""
        in_x, in_y = self._gradients(self.tree_x(x), self.tree_y(y), self.problem.data)
        return self._ravel(in_x), self._ravel(in_y)

    def second(self, x: np.ndarray, y: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(grad_xy g) v and (grad_yy g) v."""
        point = self.tree_x(x), self.tree_y(y), self.tree_y(v)
        cross, hvp = self._second(*point, self.problem.data)
        return self._ravel(cross), self._ravel(hvp)


@dataclass(frozen=True)
class Estimate:
    """What `estimate` found; print it, or hand `constants` to `untuned.theory`'s functions."""

    constants: Constants
    points: int
    radius: float

    def promise(self, epsilon: float) -> str:
        """What Theorems 1 and 2 promise at these constants, in words."""
        double = double_loop.corollary_1(self.constants, DTFBO(), epsilon)
        try:
            steps, evaluations = single_loop.corollary_2(self.constants, STFBO(), epsilon)
            single = f"after {_count(steps)} steps of S-TFBO ({_count(evaluations)} evaluations)"
        except ValueError:  # mu so small that the bound leaves the range of floats
            single = "after more steps of S-TFBO than a float can hold"
        return (
            f"At these constants Theorem 1 promises an average squared hypergradient norm of at "
            f"most {epsilon:g} after {_count(double.steps)} steps of D-TFBO "
            f"({_count(double.evaluations)} evaluations at most), Theorem 2 {single}."
        )

    def __str__(self) -> str:
        lines = [
            f"Estimates from {self.points} points within {self.radius:g} of the start, not bounds: "
            "elsewhere the constants may be worse.",
            *(
                f"  {name:8s} {value:<12.4g} {MEANING[name]}"
                for name, value in asdict(self.constants).items()
            ),
            self.promise(0.01),
            "The theorems hold for every problem with such constants, so runs are far better.",
        ]
        return "\n".join(lines)


def estimate(
    outer: Callable,
    inner: Callable,
    x0: Tree,
    y0: Tree,
    *,
    outer_data: Tree = None,
    inner_data: Tree = None,
    lowest: float = 0.0,
    points: int = 20,
    radius: float = 1.0,
    seed: int = 0,
) -> Estimate:
    """Probe the constants of a problem near its start.

    Points are drawn in a ball of `radius` around x0 and around y*(x0), the latter wide enough to
    hold y0. Eigenvalues of grad_yy g are exact up to 200 inner variables and by Lanczos
    iterations above; L_f1, L_g1, C_gxy come from power iterations, L_g2 from a power iteration on
    third derivatives, by differences. Use float64.

    Parameters
    ----------
    outer, inner, x0, y0, outer_data, inner_data : the problem, as for `untuned.minimize`.
    lowest : a number that Phi is nowhere below; 0 suits a loss.
    points, radius, seed : how many points, how far, and which.

    Example
    -------
    >>> import numpy as np, untuned
    >>> f = lambda x, y: ((1 + (y - 1.0) ** 2) ** 0.5).sum()
    >>> g = lambda x, y: ((y - x) ** 2).sum()
    >>> found = untuned.theory.estimate(f, g, np.zeros(2), np.zeros(2))
    >>> round(found.constants.mu, 6), round(found.constants.L_g1, 3)
    (2.0, 4.0)
    """
    _check_probing(points, radius, lowest, seed)
    problem = build(outer, inner, x0, y0, outer_data, inner_data)
    with problem.precision():
        flat = _Probed(problem)
        solved = flat.solve_inner(flat.x0, flat.y0)
        y_gap = float(np.linalg.norm(flat.y0 - solved))
        phi = flat.outer(flat.x0, solved)[0]
        if not phi >= lowest:
            raise ValueError(
                f"Phi(x0) is {phi:.6g} and lowest is {brief(lowest)}; expected a number that Phi "
                "is nowhere below, so give a smaller one as lowest."
            )
        rng = np.random.default_rng(seed)
        near = [(flat.x0, flat.y0), (flat.x0, solved)]
        for _ in range(points):
            x = flat.x0 + _in_ball(rng, flat.x0.size, radius)
            near.append((x, solved + _in_ball(rng, solved.size, radius + y_gap)))
        probed = [_probe(flat, x, y, rng) for x, y in near]
    largest = {name: max(probe[name] for probe in probed) for name in probed[0]}
    largest["mu"] = min(probe["mu"] for probe in probed)
    if not largest["mu"] > 0:
        raise ValueError(
            f"mu was estimated as {largest['mu']:.3g}, the smallest curvature of g in y at the "
            "points probed; the theorems need it above zero, for instance by a ridge term in g."
        )
    # A Lipschitz constant is nowhere below a curvature that was measured more exactly.
    largest["L_g1"] = max(largest["L_g1"], largest["C_gyy"])
    constants = Constants(**largest, phi_gap=phi - lowest, y_gap=y_gap)
    return Estimate(constants, len(near), float(radius))


def _check_probing(points: Any, radius: Any, lowest: Any, seed: Any) -> None:
    for name, value in (("points", points), ("seed", seed)):
        is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not is_whole or value < 0:
            raise ValueError(f"{name} is {brief(value)}; expected a whole number from 0 up.")
    for name, value, least in (("radius", radius, 0.0), ("lowest", lowest, -math.inf)):
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not (is_number and least < value < math.inf):
            above = " above zero" if name == "radius" else ""
            raise ValueError(f"{name} is {brief(value)}; expected a finite number{above}.")


def _in_ball(rng: np.random.Generator, size: int, radius: float) -> np.ndarray:
    direction = rng.standard_normal(size)
    return radius * rng.random() * direction / np.linalg.norm(direction)


def _probe(
    flat: _Probed, x: np.ndarray, y: np.ndarray, rng: np.random.Generator
) -> dict[str, float]:
    _, f_x, f_y = flat.outer(x, y)
    smallest, largest = flat.curvature(x, y)
    here = np.concatenate([x, y])
    length = float(np.finfo(flat.dtype).eps) ** (1 / 3) * max(1.0, float(np.linalg.norm(here)))

    def outer_gradient(z: np.ndarray) -> np.ndarray:
        return np.concatenate(flat.outer(z[: x.size], z[x.size :])[1:])

    def inner_gradient(z: np.ndarray) -> np.ndarray:
        return np.concatenate(flat.gradients(z[: x.size], z[x.size :]))

    def second(z: np.ndarray, v: np.ndarray) -> np.ndarray:
        return np.concatenate(flat.second(z[: x.size], z[x.size :], v))

    return {
        "mu": smallest,
        "C_gyy": largest,
        "C_fx": float(np.linalg.norm(f_x)),
        "C_fy": float(np.linalg.norm(f_y)),
        "L_f1": _steepest(outer_gradient, here, length, rng),
        "L_g1": _steepest(inner_gradient, here, length, rng),
        "C_gxy": _cross_norm(flat, x, y, length, rng),
        "L_g2": _sharpest(second, here, y.size, length, rng),
    }


def _unit(vector: np.ndarray) -> np.ndarray:
    norm = np.linalg.norm(vector)
    return vector / norm if norm > 0 else vector


def _along(function: Callable, at: np.ndarray, direction: np.ndarray, length: float) -> np.ndarray:
    """The derivative of `function` along a direction, by central differences."""
    step = length * direction
    return (function(at + step) - function(at - step)) / (2 * length)


def _steepest(gradient: Callable, at: np.ndarray, length: float, rng: np.random.Generator) -> float:
    """The norm of the Hessian, by power iteration."""
    direction, most = _unit(rng.standard_normal(at.size)), 0.0
    for _ in range(POWER_STEPS):
        image = _along(gradient, at, direction, length)
        most, direction = max(most, float(np.linalg.norm(image))), _unit(image)
    return most


def _cross_norm(
    flat: _Probed, x: np.ndarray, y: np.ndarray, length: float, rng: np.random.Generator
) -> float:
    """The norm of grad_xy g, by power iteration on it and its transpose in turn."""
    v, most = _unit(rng.standard_normal(y.size)), 0.0
    for _ in range(POWER_STEPS):
        image = flat.second(x, y, v)[0]
        most = max(most, float(np.linalg.norm(image)))
        v = _unit(_along(lambda x: flat.inner(x, y)[1], x, _unit(image), length))
    return most


def _sharpest(
    second: Callable, at: np.ndarray, size_y: int, length: float, rng: np.random.Generator
) -> float:
    """How fast grad_xy g and grad_yy g change: the power iteration for a symmetric 3-tensor."""
    direction, most = _unit(rng.standard_normal(at.size)), 0.0
    for _ in range(POWER_STEPS):
        v = _unit(direction[-size_y:])
        change = _along(lambda z, v=v: second(z, v), at, direction, length)
        parts = (change[:-size_y], change[-size_y:])
        most = max(most, *(float(np.linalg.norm(part)) for part in parts))
        direction = _unit(change)
    return most


def _count(number: int) -> str:
    """A whole number as people write it: plain up to a million, as a power of ten above."""
    if number < 10**6:
        return f"{number:,}"
    exponent = len(str(number)) - 1
    return f"{number / 10**exponent:.1f}e{exponent}"
