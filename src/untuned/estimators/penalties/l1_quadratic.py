"""The second-order model of a loss with absolute penalties, minimized exactly.

    1/2 u^t H u - q^t u + sum_j l1_j |u_j|

scikit-learn's coordinate descent finds about which coefficients are zero, with columns scaled so
that every l1 is one. Then coefficients leave and join one at a time until the signs are right, and
the minimizer is a linear system.
"""

from __future__ import annotations

import warnings

import numpy as np
from scipy import linalg

JITTER = 1e-10  # of the mean curvature, where columns repeat each other
SWEEPS = 1000
MOST_CHANGES = 4  # of signs, for each coefficient


def solved(H: np.ndarray, q: np.ndarray) -> np.ndarray:
    """H^{-1} q; H is as good as singular where columns repeat each other."""
    H = H.copy()
    H.flat[:: len(H) + 1] += JITTER * np.trace(H) / max(len(H), 1)
    _, found, failed = linalg.lapack.dposv(H, q)  # scipy's own `solve` checks for longer than this
    return linalg.lstsq(H, q)[0] if failed else found


def quadratic(
    H: np.ndarray, q: np.ndarray, l1: np.ndarray, start: np.ndarray, spread: float | None = None
) -> np.ndarray:
    """The minimizer of 1/2 u^t H u - q^t u + sum l1 |u|.

    `spread` is the mean square of the target, where there is one.
    """
    same = _on_support(H, q, l1, start)
    if same is not None:
        return same
    scale = 1 / l1
    G = scale[:, None] * H * scale
    G.flat[:: len(G) + 1] += JITTER * np.trace(G) / len(G)
    q_scaled = scale * q
    if spread is None:
        spread = float(q_scaled @ solved(G, q_scaled))
    u = scale * descend(G, q_scaled, spread, np.ones(1), start / scale)[:, 0]
    return _settled(H, q, l1, u)


def descend(
    G: np.ndarray, q: np.ndarray, spread: float, strengths: np.ndarray,
    start: np.ndarray | None = None, share: float = 1.0, tol: float = 1e-6,
) -> np.ndarray:  # fmt: skip
    """Minimizers (features, strengths) of 1/2 u^t G u - q^t u + s (share |u| + ...), by its path.

    scikit-learn's coordinate descent, which asks the rows for their number alone if it has G: they
    are one here, and its target has the size by which it measures how near the end is.
    """
    from sklearn import config_context
    from sklearn.linear_model import enet_path

    with warnings.catch_warnings(), config_context(skip_parameter_validation=True):
        warnings.simplefilter("ignore")  # its gap: the rounds around it look for themselves
        _, path, _ = enet_path(
            np.zeros((1, len(G)), order="F"), np.array([max(spread, 0.0) ** 0.5]), l1_ratio=share,
            alphas=strengths, precompute=np.ascontiguousarray(G), Xy=np.ascontiguousarray(q),
            coef_init=start, check_input=False, tol=tol, max_iter=SWEEPS,
        )  # fmt: skip
    return path


def _on_support(H: np.ndarray, q: np.ndarray, l1: np.ndarray, u: np.ndarray) -> np.ndarray | None:
    """The exact minimizer, if it has the signs of u."""
    signs = np.sign(u)
    exact = _with_signs(H, q, l1, u, signs)
    if (np.sign(exact) != signs).any() or _excess(H, q, l1, exact).max(initial=0) > 0:
        return None
    return exact


def _settled(H: np.ndarray, q: np.ndarray, l1: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The exact minimizer from a u near it, one coefficient leaving or joining at a time.

    Coordinate descent stops short of it where columns nearly repeat each other. Between two changes
    of sign the function is quadratic, so every move is to its minimum or to the first coefficient
    that becomes zero, and none goes up.
    """
    signs = np.sign(u)
    for _ in range(MOST_CHANGES * len(u)):
        goal = _with_signs(H, q, l1, u, signs)
        turned = np.flatnonzero(signs * goal < 0)
        if len(turned):
            way = u[turned] / (u[turned] - goal[turned])
            if way.min() == 0:
                break  # what has just joined would leave: rounding
            u = u + way.min() * (goal - u)
            gone = turned[way.argmin()]
            u[gone] = signs[gone] = 0
            continue
        u = goal
        excess = _excess(H, q, l1, u)
        if excess.max(initial=0) <= 0:
            break
        joins = excess.argmax()
        signs[joins] = np.sign(q[joins] - H[joins] @ u)
    return u


def _with_signs(
    H: np.ndarray, q: np.ndarray, l1: np.ndarray, u: np.ndarray, signs: np.ndarray
) -> np.ndarray:
    """The minimizer among coefficients of these signs, as if signs could not change."""
    support = np.flatnonzero(signs)
    exact = np.zeros_like(u)
    if len(support):
        H_here = H[np.ix_(support, support)]
        # A correction of u: what `solved` adds to H then holds back the step and not the answer,
        # which would else stay off by more than rounding where columns repeat each other.
        left = q[support] - l1[support] * signs[support] - H_here @ u[support]
        exact[support] = u[support] + solved(H_here, left)
    return exact


def _excess(H: np.ndarray, q: np.ndarray, l1: np.ndarray, u: np.ndarray) -> np.ndarray:
    """By how much slopes of coefficients that are zero are too steep for that."""
    return np.where(u == 0, abs(q - H @ u) - l1 * (1 + 1e-9), -np.inf)
