"""Models of one output and fewer rows than features, by Newton's method on a number for each row.

With K = X S^-1 X^t the model is w = S^-1 X^t a and has the outputs z = K a + b; it is solved where
a = -W loss'(z) and 1^t a = r b, r hardly more than zero. With C = W loss''(z), a step of Newton's
method leads to

    a = P(q) - b P(c),  q = C z - W loss'(z),  c = C 1,  b = 1^t P(q) / (1^t P(c) + r)
    P = (I + C K)^-1 = I - C^1/2 (I + C^1/2 K C^1/2)^-1 C^1/2 K

whose matrix has eigenvalues of at least one, however small C becomes. Its factor serves for more
steps than one, until they gain too little. If q = (X^t u, 1^t u) is a gradient in w and b, their
system gives v = S^-1 X^t (u - d), with d = P(C K u) + v_b P(c) and 1^t d + r v_b = 1^t u.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.linalg import lapack

from untuned.estimators.penalties.objectives.closed import MOST_ENTRIES, Closed, Fit
from untuned.estimators.penalties.objectives.objective import Models

# Where this is the quicker way, by measurement (docs/lab/penalties.md): above so many rows their
# products cost more than the conjugate gradients that they spare, and above so many features those
# do without eigenvectors.
MOST_ROWS, MOST_FEATURES = 256, 1024
EXACT = 1e-14  # of g: what is left to gain, so that outputs are known to half of the digits
SLOW = 0.01  # of what was left to gain is left after a step: time for a new factor
MOST_STEPS, MOST_HALVINGS = 100, 30
ENOUGH = 1e-4  # share of the decrease that the slope promises


def applies(loss: str, X: np.ndarray, models: int, columns: int) -> bool:
    """Whether there is one output, rows are dense and few, and the kernels of all models small."""
    rows, features = X.shape
    return (
        loss != "squared"
        and columns == 1
        and rows < features <= MOST_FEATURES
        and rows <= MOST_ROWS
        and not sparse.issparse(X)
        and models * rows**2 <= MOST_ENTRIES
    )


class Inverse(NamedTuple):
    """P at one C."""

    K: np.ndarray
    curve: np.ndarray  # the diagonal of C
    factor: np.ndarray
    of_curve: np.ndarray  # P(c)

    @classmethod
    def make(cls, K: np.ndarray, curve: np.ndarray) -> Inverse:
        """P for this C."""
        root = np.sqrt(curve)
        matrix = K * root
        matrix *= root[:, None]
        matrix.flat[:: len(root) + 1] += 1
        factor, failed = lapack.dpotrf(matrix.T, overwrite_a=True, clean=False)
        if failed:
            raise np.linalg.LinAlgError(
                "The rows' products over the strengths are not finite; expected finite rows and "
                "weights that differ by less than 1e12, so scale or drop the smallest weights."
            )
        bare = cls(K, curve, factor, curve)
        return bare._replace(of_curve=bare(curve))

    def __call__(self, q: np.ndarray) -> np.ndarray:
        """P(q)."""
        root = np.sqrt(self.curve)
        return q - root * lapack.dpotrs(self.factor, root * (self.K @ q))[0]


class State(NamedTuple):
    """A model on its rows."""

    a: np.ndarray
    b: float
    z: np.ndarray
    value: float  # of g


class KernelNewton(Closed):
    """Models of a smooth loss of one output."""

    def __init__(self, models: Models):
        super().__init__(models)
        self.pull = models.intercept_penalty * models.shares.total
        # Solutions are near those of the last strengths.
        self.near = [(np.zeros(len(rows)), 0.0) for rows in self.rows]

    def fit(self, s: np.ndarray) -> Fit:
        """The models with strengths s (features, vectors, columns)."""
        count, of_model = len(self.owner), s[:, self.owner, 0]
        a, b = np.zeros((len(self.X), count)), np.zeros(count)
        kernels = []
        for v in range(s.shape[1]):
            root = self.X * s[:, v, 0] ** -0.5
            kernels.append(root @ root.T)
        solved = []
        for k, rows in enumerate(self.rows):
            K = kernels[self.owner[k]][np.ix_(rows, rows)]
            a[rows, k], b[k], curve = self._solve(k, K)
            self.near[k] = a[rows, k], b[k]
            solved.append((K, curve))

        def adjoint(slopes: np.ndarray) -> np.ndarray:
            left = np.ascontiguousarray(slopes[:, 0].T)
            sums = left.sum(axis=0)
            for k in self.choosing:
                rows, P = self.rows[k], Inverse.make(*solved[k])
                moved = P(P.curve * (kernels[self.owner[k]][rows] @ left[:, k]))
                in_b = (sums[k] - moved.sum()) / (P.of_curve.sum() + self.pull[k])
                left[rows, k] -= moved + in_b * P.of_curve
            return (self.X.T @ left / of_model)[:, :, None]

        return (self.X.T @ a / of_model)[:, :, None], b[:, None], adjoint

    def _solve(self, k: int, K: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
        """a and b of a model with this kernel, and the diagonal of C there."""
        loss, rows, pull = self.models.loss, self.rows[k], self.pull[k]
        weight, t = self.weight[k, rows], self.t[rows].T

        def at(a: np.ndarray, b: float, z: np.ndarray) -> State:
            with np.errstate(over="ignore", invalid="ignore"):  # of counts, far from the solution
                value = weight @ loss.value(z[None], t, 0)
            return State(a, b, z, float(value + 0.5 * (a @ (z - b) + pull * b**2)))

        def slope_and_curve(z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            curve = loss.bend(z[None], 0, t)(np.ones((1, len(z))))[0]
            return weight * loss.slope(z[None], t, 0)[0], weight * curve

        a, b = self.near[k]
        here, nothing = at(a, b, K @ a + b), np.zeros(len(rows))
        nowhere = at(nothing, 0.0, nothing)
        if not here.value < nowhere.value:  # strengths may have become far weaker
            here = nowhere
        slope, curve = slope_and_curve(here.z)
        inverse, fresh, before = Inverse.make(K, curve), True, np.inf
        for _ in range(MOST_STEPS):
            found = inverse(inverse.curve * here.z - slope)
            b = found.sum() / (inverse.of_curve.sum() + pull)
            step, move = found - b * inverse.of_curve - here.a, b - here.b
            along = K @ step
            promised = -(slope + here.a) @ along - move * (slope.sum() + pull * here.b)
            # Too short a step for g to show, and so no reason to doubt it.
            last = abs(promised) <= EXACT * here.value
            falls, share = False, 1.0
            for _ in range(MOST_HALVINGS if fresh else 1):
                ahead = at(
                    here.a + share * step, here.b + share * move, here.z + share * (along + move)
                )
                falls = last or ahead.value <= here.value - ENOUGH * share * promised
                if falls:
                    here = ahead
                    slope, curve = slope_and_curve(here.z)
                    break
                share *= 0.5
            if last:
                break
            if fresh and not falls:  # for rounding
                break
            fresh = not falls or promised > SLOW * before
            before = promised
            if fresh:
                inverse = Inverse.make(K, curve)
        return here.a, here.b, curve
