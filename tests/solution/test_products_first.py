"""From some tens of variables on JAX tries without a matrix first, and makes one if that fails."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import untuned
from untuned import ops
from untuned.problem.derivatives import Oracles
from untuned.solution import large
from untuned.solvers.numerics.newton_cg import solve_inner

SIZE = 80
rng = np.random.default_rng(0)
root = rng.standard_normal((SIZE, 6))
CURVATURES = {
    "few eigenvalues": root @ root.T + np.eye(SIZE),
    "many eigenvalues": np.diag(np.logspace(-7, 0, SIZE)),
}


def inner(x, y, matrix):
    return y @ (matrix @ y) / 2 + (y**4).sum() / 40 - x * y.sum()


def loss(x, matrix):
    return (untuned.argmin(inner, x, jnp.zeros(SIZE), data=matrix) ** 2).sum()


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


both_derivatives = jax.jit(
    lambda x, matrix: jax.jvp(lambda x: jax.grad(loss)(x, matrix), (x,), (1.0,))
)


@pytest.mark.parametrize("name", CURVATURES)
def test_derivatives_of_both_ways(name):
    matrix = jnp.asarray(CURVATURES[name])
    slope, again = both_derivatives(0.7, matrix)
    y = untuned.argmin(inner, 0.7, jnp.zeros(SIZE), data=matrix)  # with a matrix, in NumPy
    np.testing.assert_allclose(matrix @ y + y**3 / 10, 0.7 + 0 * y, atol=1e-9)
    curvature = np.asarray(matrix) + np.diag(0.3 * y**2)
    moved = np.linalg.solve(curvature, np.ones(SIZE))
    bent = np.linalg.solve(curvature, -0.6 * y * moved**2)
    np.testing.assert_allclose(slope, 2 * y @ moved, rtol=1e-8)
    np.testing.assert_allclose(again, 2 * moved @ moved + 2 * y @ bent, rtol=1e-7)


def test_a_stack_of_which_some_need_a_matrix_and_one_has_no_solution():
    matrices = jnp.stack([*map(jnp.asarray, CURVATURES.values()), -jnp.eye(SIZE)])
    flat = lambda x, y, matrix: y @ (matrix @ y) / 2 - x * y.sum()
    solve = lambda x, matrix: untuned.argmin(flat, x, jnp.zeros(SIZE), data=matrix).sum()
    both = jax.jit(jax.vmap(jax.value_and_grad(solve), in_axes=(None, 0)))(0.7, matrices)
    expected = [np.linalg.solve(matrix, np.ones(SIZE)).sum() for matrix in CURVATURES.values()]
    np.testing.assert_allclose(both[1], [*expected, np.nan], rtol=1e-7)
    np.testing.assert_allclose(both[0], 0.7 * both[1], rtol=1e-7)


def test_a_try_is_sure_or_ends_with_its_first_slow_system():
    steps = {}
    for name, matrix in CURVATURES.items():
        function = lambda _, y, matrix=matrix: inner(0.7, y, matrix)
        o = Oracles(ops.get("jax"), function, function)
        found = solve_inner(
            o, None, jnp.zeros(SIZE), None, 1e-12, SIZE // large.SYSTEM, lambda r: r, large.TRIES,
            gives_up=True,
        )  # fmt: skip
        steps[name] = int(found.newton_steps), int(found.linear_steps)
    assert steps["many eigenvalues"] == (1, SIZE // large.SYSTEM)
    assert 4 <= steps["few eigenvalues"][0] < large.TRIES
    assert steps["few eigenvalues"][1] < SIZE


@pytest.mark.parametrize(("last", "expected"), [(0.0, False), (-1.0, False), (1.0, True)])
def test_curvature_everywhere_is_certain_or_not(last, expected):
    backend = ops.get("jax")
    diagonal = jnp.ones(SIZE).at[-1].set(last)
    _, sure = large.curvature(
        backend, ops.roots("jax"), lambda v: diagonal * v, jnp.zeros(SIZE), SIZE // large.SYSTEM
    )
    assert bool(sure) is expected
