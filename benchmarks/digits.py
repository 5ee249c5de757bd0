"""How many digits of the answer a run gets right, in both float types.

    python benchmarks/digits.py [--only NAME] [--libraries jax torch numpy]

Linear sets of NIST's StRD (Longley, Wampler 1 to 5, NoInt 1 and 2) and made ones with offsets,
scales and nearly collinear columns, as least squares and as logistic regression. Each is an inner
problem whose answer y is known to many digits, with one outer variable whose best value is one:
g(x, y) = |X y - x t|^2 / 2n, or the logistic loss less (x - 1) b y_2, and f is g at x = 1.
Digits are those of the worst coefficient, as NIST counts them. SciPy's answer is that of `lstsq`,
or of `trust-exact`, in the same float type. A star marks a run that did not say it converged.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import linalg, optimize

import untuned

RIDGE = 1e-3
LIBRARIES = ["jax", "torch", "numpy"]


def nist() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The sets whose numbers are known here for certain (records/nist.json), and polynomials."""
    data = json.loads((Path(__file__).parent / "records" / "nist.json").read_text())
    found = {name: (np.array(one["X"], float), np.array(one["t"], float))
             for name, one in data.items()}  # fmt: skip
    powers = np.arange(21.0)[:, None] ** np.arange(6)
    delta = found.pop("wampler noise")[1]
    for number, (coefficients, noise) in enumerate(
        [(1.0, 0), (0.1, 0), (1.0, 1), (1.0, 100), (1.0, 10_000)], 1
    ):
        found[f"wampler{number}"] = powers, powers @ coefficients ** np.arange(6.0) + noise * delta
    return found


def made() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Columns that are far from zero, of other sizes, or nearly the same."""
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for name, offset, scale, apart in [
        ("plain", 0, 0, 1), ("offset 1e2", 1e2, 0, 1), ("year", 2e3, 0, 1),
        ("offset 1e4", 1e4, 0, 1), ("offset 1e5", 1e5, 0, 1), ("offset 1e6", 1e6, 0, 1),
        ("scales 1e-2 to 1e2", 0, 2, 1), ("scales 1e-4 to 1e4", 0, 4, 1),
        ("scales 1e-6 to 1e6", 0, 6, 1), ("apart by 1e-1", 0, 0, 1e-1),
        ("apart by 1e-2", 0, 0, 1e-2), ("apart by 1e-3", 0, 0, 1e-3),
        ("apart by 1e-4", 0, 0, 1e-4), ("year and scales", 2e3, 2, 1),
        ("year and apart by 1e-2", 2e3, 0, 1e-2), ("scales and apart by 1e-2", 0, 3, 1e-2),
    ]:  # fmt: skip
        rng = np.random.default_rng(len(found))
        X = rng.standard_normal((200, 5))
        X[:, 0] = 1
        X[:, 4] = X[:, 3] + apart * X[:, 4] if apart < 1 else X[:, 4]
        X[:, 1] = offset + 6 * X[:, 1] if offset else X[:, 1]
        X *= 10.0 ** np.linspace(-scale, scale, 5)
        weights = rng.standard_normal(5) / np.abs(X).max(0)
        found[name] = X, X @ weights + 0.1 * rng.standard_normal(200)
    return found


def exact(kind: str, X: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The answer in fifty digits, or for logistic losses in eighteen, rounded."""
    import mpmath  # type: ignore[import-untyped]

    mpmath.mp.dps = 50
    A, b = mpmath.matrix(X.tolist()), mpmath.matrix(t.tolist())
    if kind == "squares":
        return np.array([float(v) for v in mpmath.lu_solve(A.T * A, A.T * b)])
    y = np.zeros(X.shape[1], np.longdouble)
    X, t = X.astype(np.longdouble), t.astype(np.longdouble)
    for _ in range(100):
        p = 1 / (1 + np.exp(t * (X @ y)))
        gradient = -X.T @ (t * p) / len(t) + RIDGE * y
        hessian = X.T @ ((p * (1 - p))[:, None] * X) / len(t) + RIDGE * np.eye(len(y))
        step = mpmath.lu_solve(*(mpmath.matrix(a.astype(float).tolist())
                                 for a in (hessian, gradient)))  # fmt: skip
        y = y - np.array([float(v) for v in step], np.longdouble)
    return y.astype(float)


def digits(found: Any, right: np.ndarray) -> float:
    """Of the worst coefficient, at most fifteen."""
    error = np.abs(np.asarray(found, float) - right) / np.abs(right)
    worst = error.max()
    return 0.0 if not np.isfinite(worst) else min(15.0, max(0.0, -math.log10(max(worst, 1e-15))))


def tilt_of(X: np.ndarray) -> np.ndarray:
    """A slope for one coefficient, as large as its column."""
    return np.where(np.arange(X.shape[1]) == 2, X.std(0) / 10, 0).astype(X.dtype)


class Closed:
    """g, or f where x is left out, with derivatives of its own for NumPy."""

    def __init__(self, kind: str, X: np.ndarray, t: np.ndarray, is_outer: bool):
        self.kind, self.X, self.t, self.is_outer = kind, X, t, is_outer
        self.tilt = tilt_of(X)

    def _x(self, x: np.ndarray) -> Any:
        return self.X.dtype.type(1) if self.is_outer else x[0]

    def __call__(self, x: np.ndarray, y: np.ndarray) -> Any:
        z = self.X @ y
        if self.kind == "squares":
            return np.mean((z - self._x(x) * self.t) ** 2) / 2
        loss = np.mean(np.logaddexp(0, -self.t * z)) + RIDGE * (y @ y) / 2
        return loss - (self._x(x) - 1) * (self.tilt @ y)

    def grad_y(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        z, count = self.X @ y, self.X.dtype.type(len(self.t))
        if self.kind == "squares":
            return self.X.T @ (z - self._x(x) * self.t) / count
        slope = -self.t / (1 + np.exp(self.t * z))
        return self.X.T @ slope / count + RIDGE * y - (self._x(x) - 1) * self.tilt

    def value_and_grads(self, x: np.ndarray, y: np.ndarray) -> tuple:
        return self(x, y), np.zeros_like(x), self.grad_y(x, y)  # asked of f alone

    def products(self, x: np.ndarray, y: np.ndarray) -> Any:
        count = self.X.dtype.type(len(self.t))
        weights = np.ones_like(self.t)
        if self.kind != "squares":
            p = 1 / (1 + np.exp(self.t * (self.X @ y)))
            weights = p * (1 - p)

        def pull(v: np.ndarray, wrt: str) -> Any:
            turned = self.X @ v
            if self.kind == "squares":
                in_x = -np.array([self.t @ turned], self.X.dtype) / count
                in_y = self.X.T @ turned / count
            else:
                in_x = -np.array([self.tilt @ v], self.X.dtype)
                in_y = self.X.T @ (weights * turned) / count + RIDGE * v
            return {"x": in_x, "y": in_y, "xy": (in_x, in_y)}[wrt]

        return pull


def ours(library: str, kind: str, X: np.ndarray, t: np.ndarray) -> Any:
    """A run of `auto`."""
    x0, y0 = np.full(1, 0.5, X.dtype), np.zeros(X.shape[1], X.dtype)
    if library == "numpy":
        functions = (Closed(kind, X, t, True), Closed(kind, X, t, False))
        return untuned.minimize(*functions, x0, y0, max_seconds=10)
    convert: Any = np.asarray
    softplus: Any
    if library == "jax":
        import jax

        softplus = jax.nn.softplus
    else:
        import torch

        convert, softplus = torch.from_numpy, torch.nn.functional.softplus
    tilt = convert(tilt_of(X))

    def inner(x: Any, y: Any, rows: Any) -> Any:
        z = rows[0] @ y
        if kind == "squares":
            return ((z - x[0] * rows[1]) ** 2).mean() / 2
        return softplus(-rows[1] * z).mean() + RIDGE * (y @ y) / 2 - (x[0] - 1) * (tilt @ y)

    data = (convert(X), convert(t))
    return untuned.minimize(
        lambda x, y, rows: inner(0 * x + 1, y, rows), inner, convert(x0), convert(y0),
        outer_data=data, inner_data=data, max_seconds=10,
    )  # fmt: skip


def theirs(kind: str, X: np.ndarray, t: np.ndarray) -> np.ndarray:
    """SciPy's answer."""
    if kind == "squares":
        return linalg.lstsq(X, t)[0]
    g, x = Closed(kind, X, t, True), np.ones(1, X.dtype)
    cast = lambda function: lambda y: function(y.astype(X.dtype))
    eye = np.eye(X.shape[1], dtype=X.dtype)
    hessian = lambda y: np.stack([g.products(x, y)(unit, "y") for unit in eye]).astype(float)
    return optimize.minimize(
        cast(lambda y: float(g(x, y))), np.zeros(X.shape[1]), method="trust-exact",
        jac=cast(lambda y: g.grad_y(x, y).astype(float)), hess=cast(hessian),
        options={"gtol": 1e-15, "maxiter": 500},
    ).x  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="problems whose name has this in it")
    parser.add_argument("--libraries", nargs="+", default=LIBRARIES, choices=LIBRARIES)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")  # of what float32 loses
    problems = [("squares", *one) for one in (nist() | made()).items()]
    for name, (X, t) in made().items():
        labels = np.where(t > np.median(t), 1.0, -1.0)
        problems.append(("logistic", name, (X, labels)))
    columns = [f"{side} {bits}" for bits in (32, 64) for side in ("SciPy", *asked.libraries)]
    print(f"| problem | {' | '.join(columns)} |")
    print("|---" * (len(columns) + 1) + "|")
    for kind, name, (X, t) in problems:
        title = f"{kind}, {name}"
        if asked.only and asked.only not in title:
            continue
        right, cells = exact(kind, X, t), []
        for dtype in (np.float32, np.float64):
            held = X.astype(dtype), t.astype(dtype)
            cells.append(f"{digits(theirs(kind, *held), right):.1f}")
            for library in asked.libraries:
                result = ours(library, kind, *held)
                mark = "" if result.status == "converged" else "*"
                cells.append(f"{digits(result.y, right):.1f}{mark}")
        print(f"| {title} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
