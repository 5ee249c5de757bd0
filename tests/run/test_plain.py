"""The loop for small exact problems gives what `untuned.minimize` gives."""

import time

import numpy as np
import optree
import pytest

import untuned
from untuned.run import plain


class Fit:
    """Least squares with a penalty per coefficient: f without, g with it; x are logarithms."""

    def __init__(self, rows, penalised, dtype):
        random = np.random.default_rng(rows)
        self.X = random.standard_normal((rows, 5)).astype(dtype)
        self.t = self.X @ np.array([1, 0, 2, 0, 0.5], dtype) + random.standard_normal(rows) / 2
        self.t, self.on = self.t.astype(dtype), dtype(penalised)

    def __call__(self, x, y):
        left = self.X @ y - self.t
        return float(left @ left) / len(left) + float(self.on * np.exp(x) @ y**2)

    def grad_y(self, x, y):
        return 2 * self.X.T @ (self.X @ y - self.t) / len(self.t) + 2 * self.on * np.exp(x) * y

    def value_and_grads(self, x, y):
        return self(x, y), self.on * np.exp(x) * y**2, self.grad_y(x, y)

    def products(self, x, y):
        def pull(v, wrt):
            parts = {
                "x": lambda: 2 * self.on * np.exp(x) * y * v,
                "y": lambda: (
                    2 * self.X.T @ (self.X @ v) / len(self.t) + 2 * self.on * np.exp(x) * v
                ),
            }
            return tuple(parts[one]() for one in wrt) if len(wrt) > 1 else parts[wrt]()

        return pull


def assert_same(ours, theirs):
    """Bit for bit, the state and the history too; only the clock differs."""
    for name in ("status", "message", "steps", "counts"):
        assert getattr(ours, name) == getattr(theirs, name)
    a, b = (optree.tree_leaves((each.x, each.y, each.v, each.state)) for each in (ours, theirs))
    assert all(np.array_equal(p, q) for p, q in zip(a, b, strict=True))
    for name in set(ours.history) - {"seconds"}:
        assert np.array_equal(ours.history[name], theirs.history[name]), name


def problem(dtype=np.float64):
    start = np.zeros(5, dtype)
    return Fit(40, 0, dtype), Fit(25, 1, dtype), start - 1, start


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "settings",
    [{}, {"tol": 1e-3}, {"max_steps": 3}, {"callback": lambda snapshot: snapshot.step == 2}],
)
def test_results_are_those_of_the_driver(dtype, settings):
    ours, theirs = (run(*problem(dtype), **settings) for run in (plain.minimize, untuned.minimize))
    assert_same(ours, theirs)
    assert ours.x.dtype == ours.y.dtype == ours.v.dtype == dtype


@pytest.mark.parametrize("method", ["d-tfbo", "s-tfbo", "sustain"])
def test_other_methods_give_the_same(method):
    ours, theirs = (
        run(*problem(), method=method, max_steps=250, seed=3)
        for run in (plain.minimize, untuned.minimize)
    )
    assert_same(ours, theirs)
    assert ours.steps == 250


def test_a_limit_of_time_is_kept():
    def late(x, y):
        time.sleep(0.05)
        return Fit.grad_y(g, x, y)

    f, g, *start = problem()
    g.grad_y = late
    began = time.perf_counter()
    result = plain.minimize(f, g, *start, max_seconds=0.3)
    assert result.status == "max_seconds"
    assert time.perf_counter() - began < 0.6


def test_g_that_is_not_finite_ends_the_run():
    f, g, *start = problem()
    of_g, calls = Fit.__call__, []
    broken = type("Broken", (Fit,), {})(25, 1, np.float64)

    def value(self, x, y):
        calls.append(x)
        return of_g(self, x, y) if len(calls) < 20 else float("nan")

    type(broken).__call__ = value
    result = plain.minimize(f, broken, *start)
    assert result.status == "diverged" and "inner function g became nan" in result.message
    assert np.isfinite(result.x).all()
