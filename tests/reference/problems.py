"""Bilevel problems in plain NumPy, with every derivative written by hand.

All problems share one set of methods. `rows` picks rows of the outer data in f and of the inner
data in g; None takes all rows. g_yy is the Hessian-vector product, g_xy is d/dx <grad_y g, v>.
"""

from dataclasses import dataclass

import numpy as np

Array = np.ndarray


def _sigmoid(z: Array) -> Array:
    return 0.5 * (1.0 + np.tanh(0.5 * z))  # tanh never overflows, exp(-z) would


@dataclass(frozen=True, eq=False)
class Quadratic:
    """g = y'Ay/2 + y'Bx + a'y and f = |y - target|^2/2 + rho |x|^2/2 + b'x. It has no data."""

    A: Array  # (dim_y, dim_y), symmetric positive definite
    B: Array  # (dim_y, dim_x)
    a: Array
    b: Array
    target: Array
    rho: float
    x0: Array
    y0: Array
    n_inner: int = 0
    n_outer: int = 0

    def f(self, x, y, rows=None):
        return 0.5 * np.sum((y - self.target) ** 2) + 0.5 * self.rho * np.sum(x**2) + self.b @ x

    def f_x(self, x, y, rows=None):
        return self.rho * x + self.b

    def f_y(self, x, y, rows=None):
        return y - self.target

    def g(self, x, y, rows=None):
        return 0.5 * y @ self.A @ y + y @ self.B @ x + self.a @ y

    def g_y(self, x, y, rows=None):
        return self.A @ y + self.B @ x + self.a

    def g_yy(self, x, y, v, rows=None):
        return self.A @ v

    def g_xy(self, x, y, v, rows=None):
        return self.B.T @ v

    def y_star(self, x):
        return -np.linalg.solve(self.A, self.B @ x + self.a)

    def v_star(self, x):
        """Solution of A v = grad_y f at y_star(x)."""
        return np.linalg.solve(self.A, self.y_star(x) - self.target)

    def hypergradient(self, x):
        return self.rho * x + self.b - self.B.T @ self.v_star(x)

    def value(self, x):
        """Phi(x) = f(x, y_star(x))."""
        return self.f(x, self.y_star(x))

    def x_star(self):
        # y_star is affine in x with slope -inv(A) B, so the Hessian of Phi is constant.
        slope = np.linalg.solve(self.A, self.B)
        hessian = self.rho * np.eye(self.b.size) + slope.T @ slope
        return -np.linalg.solve(hessian, self.hypergradient(np.zeros_like(self.b)))


def quadratic(seed: int, dim_x: int, dim_y: int, condition: float) -> Quadratic:
    """Random Quadratic; the eigenvalues of A run from 1 to `condition`."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.normal(size=(dim_y, dim_y)))
    A = (basis * np.geomspace(1.0, condition, dim_y)) @ basis.T
    B = rng.normal(size=(dim_y, dim_x)) / np.sqrt(dim_x)
    a, target, y0 = rng.normal(size=(3, dim_y))
    b, x0 = rng.normal(size=(2, dim_x))
    # Rounding leaves A slightly unsymmetric; the derivatives above assume it is not.
    return Quadratic(0.5 * (A + A.T), B, a, b, target, 0.5, x0, y0)


@dataclass(frozen=True, eq=False)
class _Classification:
    """A linear classifier y fitted to inner data and scored on outer data, whose f is plain loss.

    A subclass gives, per row of features D with label t, the loss and its slope in D @ y.
    """

    inner_features: Array
    inner_labels: Array
    outer_features: Array
    outer_labels: Array
    x0: Array
    y0: Array

    n_inner = property(lambda self: len(self.inner_labels))
    n_outer = property(lambda self: len(self.outer_labels))

    def _inner(self, rows):
        rows = slice(None) if rows is None else rows
        return self.inner_features[rows], self.inner_labels[rows]

    def _outer(self, rows):
        rows = slice(None) if rows is None else rows
        return self.outer_features[rows], self.outer_labels[rows]

    def f(self, x, y, rows=None):
        D, t = self._outer(rows)
        return np.mean(self._losses(D, t, y))

    def f_x(self, x, y, rows=None):
        return np.zeros_like(x)

    def f_y(self, x, y, rows=None):
        D, t = self._outer(rows)
        return D.T @ self._slopes(D, t, y) / len(t)


@dataclass(frozen=True, eq=False)
class RegularizationSelection(_Classification):
    """Logistic regression y with one ridge strength exp(x_k) per feature; labels are -1 or +1."""

    def _losses(self, D, t, y):
        return np.logaddexp(0.0, -t * (D @ y))

    def _slopes(self, D, t, y):
        return -t * _sigmoid(-t * (D @ y))

    def g(self, x, y, rows=None):
        D, t = self._inner(rows)
        return np.mean(self._losses(D, t, y)) + 0.5 * np.sum(np.exp(x) * y**2)

    def g_y(self, x, y, rows=None):
        D, t = self._inner(rows)
        return D.T @ self._slopes(D, t, y) / len(t) + np.exp(x) * y

    def g_yy(self, x, y, v, rows=None):
        D, t = self._inner(rows)
        curvature = _sigmoid(D @ y) * _sigmoid(-D @ y)  # no labels: t^2 = 1
        return D.T @ (curvature * (D @ v)) / len(t) + np.exp(x) * v

    def g_xy(self, x, y, v, rows=None):
        return np.exp(x) * y * v


def regularization(seed: int, n_inner: int, n_outer: int, features: int):
    """RegularizationSelection on noisy labels from a random linear rule."""
    rng = np.random.default_rng(seed)
    D = rng.normal(size=(n_inner + n_outer, features))
    score = D @ rng.normal(size=features) + rng.normal(size=len(D))
    t = np.where(score > 0, 1.0, -1.0)
    x0, y0 = np.zeros((2, features))
    i = n_inner
    return RegularizationSelection(D[:i], t[:i], D[i:], t[i:], x0, y0)


@dataclass(frozen=True, eq=False)
class HyperCleaning(_Classification):
    """Softmax regression y (features, classes) with a weight sigmoid(x_i) per inner sample.

    The loss is cross-entropy; labels are integers. A minibatch of g reads only the x of its rows.
    """

    clean_labels: Array  # inner labels before corruption; no formula reads them
    C: float = 0.2

    def _probabilities(self, D, y):
        Z = D @ y
        E = np.exp(Z - Z.max(axis=1, keepdims=True))  # the shift keeps exp from overflowing
        return E / E.sum(axis=1, keepdims=True)

    def _losses(self, D, t, y):
        Z = D @ y
        return np.logaddexp.reduce(Z, axis=1) - Z[np.arange(len(t)), t]

    def _slopes(self, D, t, y):
        return self._probabilities(D, y) - np.eye(y.shape[1])[t]

    def _weights(self, x, rows):
        return _sigmoid(x if rows is None else x[rows])

    def g(self, x, y, rows=None):
        D, t = self._inner(rows)
        return np.mean(self._weights(x, rows) * self._losses(D, t, y)) + self.C * np.sum(y**2)

    def g_y(self, x, y, rows=None):
        D, t = self._inner(rows)
        w = self._weights(x, rows)[:, None]
        return D.T @ (w * self._slopes(D, t, y)) / len(t) + 2 * self.C * y

    def g_yy(self, x, y, v, rows=None):
        D, t = self._inner(rows)
        w = self._weights(x, rows)[:, None]
        P, U = self._probabilities(D, y), D @ v
        change = P * (U - np.sum(P * U, axis=1, keepdims=True))  # of P when y moves along v
        return D.T @ (w * change) / len(t) + 2 * self.C * v

    def g_xy(self, x, y, v, rows=None):
        D, t = self._inner(rows)
        w = self._weights(x, rows)
        terms = w * (1 - w) * np.sum(self._slopes(D, t, y) * (D @ v), axis=1) / len(t)
        out = np.zeros_like(x)
        # add.at, because out[rows] += terms would count a repeated row once
        np.add.at(out, slice(None) if rows is None else rows, terms)
        return out


def cleaning(seed: int, n_inner: int, n_outer: int, features: int, classes: int, corruption: float):
    """HyperCleaning on Gaussian classes; each inner label is redrawn with chance `corruption`."""
    rng = np.random.default_rng(seed)
    clean = rng.integers(classes, size=n_inner + n_outer)
    D = rng.normal(size=(classes, features))[clean] + rng.normal(size=(len(clean), features))
    redraw = rng.random(n_inner) < corruption
    i = n_inner
    labels = np.where(redraw, rng.integers(classes, size=n_inner), clean[:i])
    x0, y0 = np.zeros(n_inner), np.zeros((features, classes))
    return HyperCleaning(D[:i], labels, D[i:], clean[i:], x0, y0, clean[:i])
