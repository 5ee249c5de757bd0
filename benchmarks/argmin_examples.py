"""Problems the field knows with an argmin inside, by `untuned` and by jaxopt in one process.

    python argmin_examples.py PART ROUNDS       one line of JSON; for argmin.py, which says how

Needs jaxopt and untuned. Forward and backward, processor time, one thread, float64, both sides
taking turns. The gradient of ours, as exact as it comes, is compared with finite differences of its
own values; every other one with that. For each of two accuracies a solver is given the loosest
tolerance that brings it there, ours for the lower one as well.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jaxopt
import numpy as np
from jaxopt import linear_solve, objective, projection, prox
from sklearn import datasets

import untuned

ROUGH, FINE = 1e-6, 1e-10  # relative errors of a gradient
# jaxopt's solvers may go from the first of these to the last; ours has a tolerance for ROUGH alone.
TOLERANCES, OUR_TOLERANCES = (1e-6, 1e-8, 1e-10, 1e-12), (1e-3, 1e-5, 1e-7)
MOST = 20_000  # iterations that a solver may take
TURN = 0.02  # seconds of one side before the other's turn
# jaxopt's linear solvers leave up to 1e-4 of the gradient if they are not told otherwise.
EXACT = partial(linear_solve.solve_normal_cg, tol=1e-11)
EXACT_SYMMETRIC = partial(linear_solve.solve_cg, tol=1e-11)


class Example(NamedTuple):
    """y of x by both sides, and a loss of it."""

    x0: Any
    outer: Callable  # of (x, y)
    ours: Callable  # of (tol, x)
    theirs: dict[str, Callable]  # of (tol, x)


def smooth(fun: Callable, y0: Any, *names: str) -> dict[str, Callable]:
    """jaxopt's solvers for fun(y, x) without constraints."""
    names = names or ("LBFGS", "BFGS", "NonlinearCG")

    def solve(name: str, tol: float, x: Any) -> Any:
        how = {"maxiter": MOST, "implicit_diff_solve": EXACT_SYMMETRIC}
        return getattr(jaxopt, name)(fun, tol=tol, **how).run(y0, x).params

    return {name: partial(solve, name) for name in names}


def halves(features: np.ndarray, targets: np.ndarray) -> tuple[Any, Any]:
    """Standardized rows, every other one for each side."""
    features = (features - features.mean(0)) / features.std(0)
    rows = jnp.asarray(features), jnp.asarray(targets)
    return tuple(part[::2] for part in rows), tuple(part[1::2] for part in rows)


def diabetes() -> tuple[Any, Any]:
    features, targets = datasets.load_diabetes(return_X_y=True)
    return halves(features, (targets - targets.mean()) / targets.std())


def squares(y: Any, rows: Any) -> Any:
    return ((rows[0] @ y - rows[1]) ** 2).mean() / 2


def ridge() -> Example:
    train, held = diabetes()
    fun = lambda y, x: squares(y, train) + (jnp.exp(x) * y**2).sum() / 2
    y0 = jnp.zeros(10)
    return Example(
        jnp.full(10, -2.0), lambda x, y: squares(y, held),
        lambda tol, x: untuned.argmin(lambda x, y: fun(y, x), x, y0, tol=tol), smooth(fun, y0),
    )  # fmt: skip


def logistic() -> Example:
    features, labels = datasets.load_breast_cancer(return_X_y=True)
    train, held = halves(features, 2.0 * labels - 1)
    loss = lambda y, rows: jnp.logaddexp(0, -rows[1] * (rows[0] @ y)).mean()
    fun = lambda y, x: loss(y, train) + (jnp.exp(x) * y**2).sum() / 2
    y0 = jnp.zeros(30)
    return Example(
        jnp.full(30, -4.0), lambda x, y: loss(y, held),
        lambda tol, x: untuned.argmin(lambda x, y: fun(y, x), x, y0, tol=tol), smooth(fun, y0),
    )  # fmt: skip


def lasso() -> Example:
    train, held = diabetes()
    y0 = jnp.zeros(10)
    fun = lambda y, x: squares(y, train)

    def proximal(tol: float, x: Any) -> Any:
        solver = jaxopt.ProximalGradient(
            fun, prox.prox_lasso, tol=tol, maxiter=MOST, implicit_diff_solve=EXACT
        )
        return solver.run(y0, hyperparams_prox=jnp.exp(x), x=x).params

    def blocks(tol: float, x: Any) -> Any:
        solver = jaxopt.BlockCoordinateDescent(
            objective.least_squares,
            prox.prox_lasso,
            tol=tol,
            maxiter=MOST,
            implicit_diff_solve=EXACT,
        )
        return solver.run(y0, hyperparams_prox=jnp.exp(x), data=train).params

    return Example(
        jnp.asarray(-3.0), lambda x, y: squares(y, held),
        lambda tol, x: untuned.argmin(
            lambda x, y: fun(y, x), x, y0, l1=jnp.exp(x), tol=tol
        ),
        {"ProximalGradient": proximal, "BlockCoordinateDescent": blocks},
    )  # fmt: skip


def svm() -> Example:
    """The dual without an intercept, in the width of its kernel."""
    features, labels = datasets.load_breast_cancer(return_X_y=True)
    train, held = halves(features[:160], 2.0 * labels[:160] - 1)
    apart = lambda a, b: ((a[:, None] - b[None]) ** 2).mean(-1)
    signed = lambda x, rows: jnp.exp(-jnp.exp(x) * apart(rows[0], train[0])) * train[1]
    y0 = jnp.full(80, 0.5)

    def matrix(x: Any) -> Any:
        return train[1][:, None] * signed(x, train) + 1e-3 * jnp.eye(80)

    fun = lambda y, x: y @ (matrix(x) @ y) / 2 - y.sum()

    def projected(tol: float, x: Any) -> Any:
        solver = jaxopt.ProjectedGradient(
            fun, projection.projection_box, tol=tol, maxiter=MOST, implicit_diff_solve=EXACT
        )
        return solver.run(y0, hyperparams_proj=(0.0, 1.0), x=x).params

    def coordinates(tol: float, x: Any) -> Any:
        program, bounds = (matrix(x), -jnp.ones(80)), (jnp.zeros(80), jnp.ones(80))
        return jaxopt.BoxCDQP(tol=tol, maxiter=MOST, implicit_diff_solve=EXACT).run(
            y0, params_obj=program, params_ineq=bounds
        ).params  # fmt: skip

    def program(tol: float, x: Any) -> Any:
        solver = jaxopt.BoxOSQP(tol=tol, maxiter=MOST, implicit_diff_solve=EXACT)
        given = (matrix(x), -jnp.ones(80)), jnp.eye(80), (jnp.zeros(80), jnp.ones(80))
        return solver.run(None, *given).params.primal[0]

    return Example(
        jnp.asarray(-1.0), lambda x, y: ((signed(x, held) @ y - held[1]) ** 2).mean(),
        lambda tol, x: untuned.argmin(
            lambda x, y: fun(y, x), x, y0, constraint=(0, 1), tol=tol
        ),
        {"ProjectedGradient": projected, "BoxCDQP": coordinates, "BoxOSQP": program},
    )  # fmt: skip


def equilibrium() -> Example:
    rng = np.random.default_rng(0)
    inputs = jnp.asarray(rng.standard_normal((64, 2)))
    targets = jnp.sin(2 * inputs[:, 0]) * inputs[:, 1]
    sizes = {"W": (6, 6), "U": (6, 2), "b": (6,), "out": (6,)}
    x0 = {
        name: jnp.asarray(0.8 * rng.standard_normal(s) / s[0] ** 0.5) for name, s in sizes.items()
    }
    layer = lambda y, x, inputs: jnp.tanh(y @ x["W"].T + inputs @ x["U"].T + x["b"])
    apart = lambda x, y, inputs: ((y - layer(y, x, inputs)) ** 2).sum() / 2
    every = lambda y, x: layer(y, x, inputs)

    def solve(name: str, tol: float, x: Any) -> Any:
        solver = getattr(jaxopt, name)(every, tol=tol, maxiter=MOST, implicit_diff_solve=EXACT)
        return solver.run(jnp.zeros((64, 6)), x).params

    return Example(
        x0, lambda x, y: ((y @ x["out"] - targets) ** 2).mean(),
        lambda tol, x: jax.vmap(
            lambda one: untuned.argmin(apart, x, jnp.zeros(6), data=one, tol=tol)
        )(inputs),
        {name: partial(solve, name) for name in ("FixedPointIteration", "AndersonAcceleration")},
    )  # fmt: skip


def coding() -> Example:
    rng = np.random.default_rng(0)
    digits = datasets.load_digits().data[:100] / 16
    rows = jnp.asarray(digits - digits.mean(1, keepdims=True))
    atoms = rng.standard_normal((24, 64))
    x0 = jnp.asarray(atoms / np.linalg.norm(atoms, axis=1)[:, None])
    fun = lambda y, x: ((rows - y @ x) ** 2).sum() / 2
    one = lambda x, y, row: ((row - y @ x) ** 2).sum() / 2

    def proximal(tol: float, x: Any) -> Any:
        solver = jaxopt.ProximalGradient(
            fun, prox.prox_lasso, tol=tol, maxiter=MOST, implicit_diff_solve=EXACT
        )
        return solver.run(jnp.zeros((100, 24)), hyperparams_prox=0.2, x=x).params

    def each(tol: float, x: Any) -> Any:
        solver = jaxopt.ProximalGradient(
            lambda y, x, row: one(x, y, row),
            prox.prox_lasso,
            tol=tol,
            maxiter=MOST,
            implicit_diff_solve=EXACT,
        )
        run = lambda row: solver.run(jnp.zeros(24), hyperparams_prox=0.2, x=x, row=row).params
        return jax.vmap(run)(rows)

    return Example(
        x0, lambda x, y: ((rows - y @ x) ** 2).mean(),
        lambda tol, x: jax.vmap(
            lambda row: untuned.argmin(one, x, jnp.zeros(24), data=row, l1=0.2, tol=tol)
        )(rows),
        {"ProximalGradient": proximal, "ProximalGradient of each": each},
    )  # fmt: skip


def distillation() -> Example:
    """Ten images of 8 x 8 that a linear model of ten digits is trained on."""
    digits = datasets.load_digits()
    rows, labels = jnp.asarray(digits.data[:600] / 16), jnp.asarray(digits.target[:600])
    scores = lambda y, images: jax.nn.log_softmax(images @ y[:-10].reshape(64, 10) + y[-10:])
    fun = lambda y, x: -jnp.diag(scores(y, x)).mean() + 1e-2 / 2 * (y**2).sum()
    x0 = jnp.stack([rows[labels == k].mean(0) for k in range(10)])
    return Example(
        x0, lambda x, y: -scores(y, rows)[jnp.arange(600), labels].mean(),
        lambda tol, x: untuned.argmin(lambda x, y: fun(y, x), x, jnp.zeros(650), tol=tol),
        smooth(fun, jnp.zeros(650)),
    )  # fmt: skip


def sinusoids() -> Example:
    """Implicit MAML: ten tasks, each trained from the same start and not far from it."""
    rng = np.random.default_rng(0)
    at = jnp.asarray(rng.uniform(-5, 5, (10, 20)))
    values = jnp.asarray(rng.uniform(0.5, 2, (10, 1))) * jnp.sin(
        at + jnp.asarray(rng.uniform(0, 3, (10, 1)))
    )
    shapes = [(1, 10), (10,), (10, 10), (10,), (10, 1), (1,)]
    ends = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])

    def network(y: Any, at: Any) -> Any:
        W0, b0, W1, b1, W2, b2 = (
            y[a:b].reshape(s) for a, b, s in zip(ends[:-1], ends[1:], shapes, strict=True)
        )
        return (jnp.tanh(jnp.tanh(at[:, None] @ W0 + b0) @ W1 + b1) @ W2 + b2)[:, 0]

    loss = lambda y, points: ((network(y, points[0]) - points[1]) ** 2).mean()
    fun = lambda y, x, points: loss(y, points) + 2.0 * ((y - x) ** 2).sum() / 2
    given, judging = (at[:, :10], values[:, :10]), (at[:, 10:], values[:, 10:])

    def solve(name: str, tol: float, x: Any) -> Any:
        how = {"maxiter": MOST, "implicit_diff_solve": EXACT_SYMMETRIC}
        solver = getattr(jaxopt, name)(fun, tol=tol, **how)
        return jax.vmap(lambda points: solver.run(x, x, points).params)(given)

    return Example(
        jnp.asarray(0.5 * rng.standard_normal(ends[-1])),
        lambda x, y: jax.vmap(loss)(y, judging).mean(),
        lambda tol, x: jax.vmap(
            lambda points: untuned.argmin(lambda x, y, d: fun(y, x, d), x, x, data=points, tol=tol)
        )(given),
        {name: partial(solve, name) for name in ("LBFGS", "BFGS")},
    )  # fmt: skip


def picture(fun_of: Callable, x0: Any) -> Example:
    """Denoising a crop of 32 x 32 by what `fun_of(noisy)` is the least of."""
    clean = jnp.asarray(datasets.load_sample_image("china.jpg")[100:132, 200:232].mean(2) / 255)
    noisy = clean + 0.1 * jnp.asarray(np.random.default_rng(0).standard_normal((32, 32)))
    fun = fun_of(noisy)
    return Example(
        x0, lambda x, y: ((y - clean) ** 2).mean(),
        lambda tol, x: untuned.argmin(lambda x, y: fun(y, x), x, noisy, tol=tol),
        smooth(fun, noisy, "LBFGS", "NonlinearCG"),
    )  # fmt: skip


def total_variation() -> Example:
    length = lambda d: jnp.sqrt(d**2 + 1e-3).sum()

    def fun_of(noisy: Any) -> Callable:
        return lambda y, x: (
            ((y - noisy) ** 2).sum() / 2
            + jnp.exp(x) * (length(y[:, 1:] - y[:, :-1]) + length(y[1:] - y[:-1]))
        )

    return picture(fun_of, jnp.asarray(-3.0))


def experts() -> Example:
    def fun_of(noisy: Any) -> Callable:
        def fun(y: Any, x: Any) -> Any:
            responses = jax.lax.conv(y[None, None], x["filters"], (1, 1), "VALID")[0]
            experts = jnp.sqrt(responses**2 + 1e-3).sum((1, 2))
            return ((y - noisy) ** 2).sum() / 2 + (jnp.exp(x["strengths"]) * experts).sum()

        return fun

    filters = np.random.default_rng(0).standard_normal((4, 1, 3, 3)) / 3
    filters -= filters.mean((2, 3), keepdims=True)
    return picture(fun_of, {"filters": jnp.asarray(filters), "strengths": jnp.full(4, -3.0)})


PARTS = {part.__name__: part for part in (
    ridge, logistic, lasso, svm, equilibrium, coding, distillation, sinusoids, total_variation,
    experts,
)}  # fmt: skip


def flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(tree)])


def finite_difference(loss: Callable, x: Any, gradient: Any) -> float:
    """How far the slope along a random direction is from the gradient's, relative."""
    rng = np.random.default_rng(1)
    way = jax.tree.map(lambda leaf: jnp.asarray(rng.standard_normal(leaf.shape)), x)
    step = 1e-3 / np.linalg.norm(flat(way)) ** 0.5
    at = lambda k: float(loss(jax.tree.map(lambda leaf, d: leaf + k * step * d, x, way)))
    slope = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)
    expected = float(flat(gradient) @ flat(way))
    size = np.linalg.norm(flat(gradient)) * np.linalg.norm(flat(way))
    return float(abs(slope - expected) / size)


def seconds_of(run: Callable, x: Any) -> float:
    """Of a call among others of the same function, as in a loop that trains: the first of a turn
    finds the processor's caches full of the other side's numbers and does not count."""
    jax.block_until_ready(run(x))
    start, calls, taken = time.process_time(), 0, 0.0
    while taken < TURN:
        jax.block_until_ready(run(x))
        calls, taken = calls + 1, time.process_time() - start
    return taken / calls


def main() -> None:
    """Both sides of one example."""
    jax.config.update("jax_enable_x64", True)
    example, rounds = PARTS[sys.argv[1]](), int(sys.argv[2])
    whole = lambda solve: jax.jit(jax.value_and_grad(lambda x: example.outer(x, solve(x))))
    ours = whole(partial(example.ours, None))
    exact = flat(ours(example.x0)[1])
    values = jax.jit(lambda x: example.outer(x, example.ours(None, x)))
    found: dict[str, Any] = {
        "difference": finite_difference(values, example.x0, ours(example.x0)[1])
    }
    runs = {"ours": ours}

    def tried(name: str, solve: Callable, tolerances: tuple, accuracies: tuple) -> None:
        """The loosest tolerances that bring a solver to each accuracy."""
        errors, left = [], list(accuracies)
        for tol in tolerances:
            run = whole(partial(solve, tol))
            apart = flat(run(example.x0)[1]) - exact
            errors.append(float(np.linalg.norm(apart) / np.linalg.norm(exact)))
            while left and errors[-1] <= left[0]:
                runs[f"{name}, {left.pop(0):.0e}"] = run
            if not left:
                break
        found[f"{name} error"] = min(errors)

    tried("ours", example.ours, OUR_TOLERANCES, (ROUGH,))
    for name, solve in example.theirs.items():
        tried(name, solve, TOLERANCES, (ROUGH, FINE))
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(seconds_of(run, example.x0))
    found["seconds"] = {name: min(measured) for name, measured in times.items()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
