"""A quadratic problem in which every derivative depends on the rows it is given.

In the paper's problems grad_x f is zero, so rows mixed up there would not show. Here

    f = mean_j [ 1/2 (e_j'y - t_j)^2 + 1/2 d_j |x|^2 + s_j x'y ]
    g = mean_i [ 1/2 (a_i'y - b_i)^2 + c_i x'y ] + 1/2 |y|^2
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Coupled:
    """x and y of one size; rows as in the other problems."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    d: np.ndarray
    e: np.ndarray
    s: np.ndarray
    t: np.ndarray
    x0: np.ndarray
    y0: np.ndarray

    @property
    def n_inner(self) -> int:
        return len(self.b)

    @property
    def n_outer(self) -> int:
        return len(self.t)

    def f(self, x, y, rows=None):
        e, t, d, s = (_pick(z, rows) for z in (self.e, self.t, self.d, self.s))
        return 0.5 * np.mean((e @ y - t) ** 2) + 0.5 * d.mean() * x @ x + s.mean() * x @ y

    def f_x(self, x, y, rows=None):
        return _pick(self.d, rows).mean() * x + _pick(self.s, rows).mean() * y

    def f_y(self, x, y, rows=None):
        e, t, s = (_pick(z, rows) for z in (self.e, self.t, self.s))
        return e.T @ (e @ y - t) / len(t) + s.mean() * x

    def g(self, x, y, rows=None):
        a, b, c = (_pick(z, rows) for z in (self.a, self.b, self.c))
        return 0.5 * np.mean((a @ y - b) ** 2) + c.mean() * x @ y + 0.5 * y @ y

    def g_y(self, x, y, rows=None):
        a, b, c = (_pick(z, rows) for z in (self.a, self.b, self.c))
        return a.T @ (a @ y - b) / len(b) + c.mean() * x + y

    def g_yy(self, x, y, v, rows=None):
        a = _pick(self.a, rows)
        return a.T @ (a @ v) / len(a) + v

    def g_xy(self, x, y, v, rows=None):
        return _pick(self.c, rows).mean() * v


def _pick(array, rows):
    return array if rows is None else array[rows]


def coupled(seed: int, n_inner: int, n_outer: int, dim: int) -> Coupled:
    """Random rows around a strongly convex mean."""
    rng = np.random.default_rng(seed)
    return Coupled(
        a=rng.standard_normal((n_inner, dim)),
        b=rng.standard_normal(n_inner),
        c=rng.standard_normal(n_inner),
        d=1 + rng.random(n_outer),
        e=rng.standard_normal((n_outer, dim)),
        s=rng.standard_normal(n_outer),
        t=rng.standard_normal(n_outer),
        x0=rng.standard_normal(dim),
        y0=rng.standard_normal(dim),
    )
