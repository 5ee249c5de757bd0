"""Quadratic problems whose constants, solution and value function are known in closed form."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from untuned_paper.problems.experiment import Experiment
from untuned_paper.problems.quadratic_form import Quadratic, QuadraticPair

MU, SMOOTHNESS, COUPLING = 0.1, 1.0, 0.1  # mu, L and L_c of the sampled problem
INNER_ROWS, OUTER_ROWS, DIM_X, DIM_Y = 32_768, 1_024, 10, 100
SEED = 2442


class Samples(NamedTuple):
    """Row i holds what makes 1/2 y'A_i y + 1/2 x'B_i x + x'C_i y + a_i'y + b_i'x.

    A_i = in_y in_y', B_i = in_x in_x' and C_i = left z z' right, all of rank one.
    """

    in_y: Any
    in_x: Any
    z: Any
    linear_y: Any
    linear_x: Any


class Factors(NamedTuple):
    """The fixed factors of C_i, and how much is added to all of B's diagonal."""

    left: np.ndarray
    right: np.ndarray
    shift: float = 0.0


def sampled_mean(factors: Factors, x: Any, y: Any, rows: Samples) -> Any:
    """The mean of the rows' quadratics."""
    mixed = (rows.z @ (x @ factors.left)) * (rows.z @ (factors.right @ y))
    curved = 0.5 * (rows.in_y @ y) ** 2 + 0.5 * (rows.in_x @ x) ** 2 + mixed
    values = curved + rows.linear_y @ y + rows.linear_x @ x
    return values.mean() + 0.5 * factors.shift * (x**2).sum()


def sampled(name: str) -> Experiment:
    """f and g as means of random quadratics of rank one, with y's mean spectrum in about [mu, L].

    The law is that of the peer benchmark's quadratic problem. It does not ensure that Phi
    is convex: B has a zero eigenvalue, and C may bend Phi down. So 1/2 shift |x|^2 is added to f,
    with the least shift that makes Phi mu-strongly convex; Phi then has a least value.
    """
    random = np.random.default_rng(SEED)
    (inner_rows, inner), (outer_rows, outer) = (
        _drawn(random, rows) for rows in (INNER_ROWS, OUTER_ROWS)
    )
    pair = QuadraticPair(_mean(outer, outer_rows), _mean(inner, inner_rows))
    outer = outer._replace(shift=max(0.0, MU - float(np.linalg.eigvalsh(pair.hessian)[0])))
    return Experiment(
        name=name,
        outer=partial(sampled_mean, outer),
        inner=partial(sampled_mean, inner),
        x0=np.full(DIM_X, -2, np.float32),
        y0=np.zeros(DIM_Y, np.float32),
        outer_data=outer_rows,
        inner_data=inner_rows,
        closed_form=QuadraticPair(_mean(outer, outer_rows), pair.inner),
    )


def _drawn(random: np.random.Generator, rows: int) -> tuple[Samples, Factors]:
    normal = random.standard_normal
    spectrum_x = np.concatenate([[0.0], _spaced(SMOOTHNESS, DIM_X - 1)])
    root_y, root_x = (
        basis * np.sqrt(spectrum)
        for basis, spectrum in (
            (_orthogonal(random, DIM_Y), _spaced(SMOOTHNESS, DIM_Y)),
            (_orthogonal(random, DIM_X), spectrum_x),
        )
    )
    samples = Samples(
        in_y=normal((rows, DIM_Y)) @ root_y.T,
        in_x=normal((rows, DIM_X)) @ root_x.T,
        z=normal((rows, DIM_X)),
        linear_y=normal((rows, DIM_Y)),
        linear_x=normal((rows, DIM_X)),
    )
    left = _orthogonal(random, DIM_X) * _spaced(COUPLING, DIM_X)
    right = _orthogonal(random, DIM_Y)[:DIM_X]
    single = (part.astype(np.float32) for part in (*samples, left, right))
    *arrays, left, right = single
    return Samples(*arrays), Factors(left, right)


def _mean(factors: Factors, rows: Samples) -> Quadratic:
    """The mean of all rows as one quadratic, in float64."""
    rows = Samples(*(part.astype(np.float64) for part in rows))
    left, right = (part.astype(np.float64) for part in factors[:2])
    count = len(rows.z)
    return Quadratic(
        A=rows.in_y.T @ rows.in_y / count,
        B=rows.in_x.T @ rows.in_x / count + factors.shift * np.eye(DIM_X),
        C=left @ (rows.z.T @ rows.z / count) @ right,
        a=rows.linear_y.mean(0),
        b=rows.linear_x.mean(0),
    )


def _spaced(top: float, count: int) -> np.ndarray:
    return np.geomspace(MU, top, count)


def _orthogonal(random: np.random.Generator, size: int) -> np.ndarray:
    return np.linalg.qr(random.standard_normal((size, size)))[0]


RIDGE = 0.1


def conditioned(name: str, condition: float) -> Experiment:
    """g = 1/2 r'Ar with r = y - Mx - c and A's eigenvalues from 1 to `condition`; no data.

    f = 1/2 |y - t|^2 + ridge/2 |x|^2. y*(x) = Mx + c whatever A is, so Phi is the same function for
    every condition: only how hard the inner problem is changes. Phi is convex by construction.
    """
    random = np.random.default_rng(SEED)
    dim_x, dim_y = 10, 20
    basis = _orthogonal(random, dim_y)
    A = (basis * np.geomspace(1.0, condition, dim_y)) @ basis.T
    A = (A + A.T) / 2
    M = random.standard_normal((dim_y, dim_x))
    c, t = random.standard_normal((2, dim_y))

    def outer(x: Any, y: Any) -> Any:
        return 0.5 * ((y - t) ** 2).sum() + 0.5 * RIDGE * (x**2).sum()

    def inner(x: Any, y: Any) -> Any:
        residual = y - M @ x - c
        return 0.5 * (residual * (A @ residual)).sum()

    zero_x, zero_y = np.zeros(dim_x), np.zeros(dim_y)
    f = Quadratic(
        np.eye(dim_y), RIDGE * np.eye(dim_x), np.zeros((dim_x, dim_y)), -t, zero_x, 0.5 * t @ t
    )
    g = Quadratic(A, M.T @ A @ M, -M.T @ A, -A @ c, M.T @ A @ c, 0.5 * c @ A @ c)
    return Experiment(
        name=name,
        outer=outer,
        inner=inner,
        x0=zero_x - 2,
        y0=zero_y,
        closed_form=QuadraticPair(f, g),
    )
