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
NOTHING = np.zeros((6, SIZE))
# H = root^T root + diagonal; with few eigenvalues, and with too many for conjugate gradients.
CURVATURES = {
    "few eigenvalues": (rng.standard_normal((6, SIZE)), np.ones(SIZE)),
    "many eigenvalues": (NOTHING, np.logspace(-7, 0, SIZE)),
}


def matrix_of(curvature):
    root, diagonal = curvature
    return root.T @ root + np.diag(diagonal)


def flat(x, y, curvature):
    root, diagonal = curvature
    return ((root @ y) ** 2).sum() / 2 + (diagonal * y**2).sum() / 2 - x * y.sum()


def inner(x, y, curvature):
    return flat(x, y, curvature) + (y**4).sum() / 40


def loss(x, curvature):
    return (untuned.argmin(inner, x, jnp.zeros(SIZE), data=curvature) ** 2).sum()


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


both_derivatives = jax.jit(
    lambda x, curvature: jax.jvp(lambda x: jax.grad(loss)(x, curvature), (x,), (1.0,))
)


@pytest.mark.parametrize("name", CURVATURES)
def test_derivatives_of_both_ways(name):
    slope, again = both_derivatives(0.7, CURVATURES[name])
    # With a matrix, in NumPy.
    y = np.asarray(untuned.argmin(inner, 0.7, jnp.zeros(SIZE), data=CURVATURES[name]))
    matrix = matrix_of(CURVATURES[name])
    np.testing.assert_allclose(matrix @ y + y**3 / 10, 0.7 + 0 * y, atol=1e-9)
    hessian = matrix + np.diag(0.3 * y**2)
    moved = np.linalg.solve(hessian, np.ones(SIZE))
    bent = np.linalg.solve(hessian, -0.6 * y * moved**2)
    np.testing.assert_allclose(slope, 2 * y @ moved, rtol=1e-8)
    np.testing.assert_allclose(again, 2 * moved @ moved + 2 * y @ bent, rtol=1e-7)


def test_a_stack_of_which_some_need_a_matrix_and_one_has_no_solution():
    curvatures = [*CURVATURES.values(), (NOTHING, -np.ones(SIZE))]
    stack = tuple(jnp.stack(parts) for parts in zip(*curvatures, strict=True))
    solve = lambda x, curvature: untuned.argmin(flat, x, jnp.zeros(SIZE), data=curvature).sum()
    both = jax.jit(jax.vmap(jax.value_and_grad(solve), in_axes=(None, 0)))(0.7, stack)
    expected = [np.linalg.solve(matrix_of(c), np.ones(SIZE)).sum() for c in CURVATURES.values()]
    np.testing.assert_allclose(both[1], [*expected, np.nan], rtol=1e-7)
    np.testing.assert_allclose(both[0], 0.7 * both[1], rtol=1e-7)


def test_tried_only_where_a_product_is_cheap():
    """By g's formula, beside two operations for each entry of the matrix."""
    lib, y = ops.roots("jax"), jnp.zeros(SIZE)
    matrix = jnp.asarray(matrix_of(CURVATURES["few eigenvalues"]))
    rows = jnp.ones((1000, SIZE))
    assert large.may_be_tried(lib, lambda y: inner(0.7, y, CURVATURES["few eigenvalues"]), y)
    assert not large.may_be_tried(lib, lambda y: y @ (matrix @ y), y)
    assert not large.may_be_tried(lib, lambda y: jax.jit(lambda y: y @ (matrix @ y))(y), y)
    assert not large.may_be_tried(lib, lambda y: (jnp.tanh(rows @ y) ** 2).sum(), y)
    twice = lambda y: jax.lax.scan(lambda y, _: (jnp.tanh(y), None), y, None, length=99)[0].sum()
    assert 99 * SIZE < lib.operations(twice, y) < 99 * SIZE * 20


def test_a_try_is_sure_or_ends_with_its_first_slow_system():
    steps = {}
    for name, curvature in CURVATURES.items():
        function = lambda _, y, curvature=curvature: inner(0.7, y, curvature)
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
