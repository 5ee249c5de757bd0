"""JAX with loops on the host: the same derivatives and runs as compiled in one piece."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import untuned
from untuned.ops import jax as compiled
from untuned.ops.cache import reusable
from untuned.ops.jax_on_host import OnHost, fits, operations
from untuned.problem.build import build
from untuned.problem.derivatives import OnRows
from untuned.run import backend
from untuned.util import watch

RNG = np.random.default_rng(0)
ROWS = jnp.asarray(RNG.normal(size=(50, 4)), jnp.float32)


@jax.custom_vjp
def cube(z):
    return z**3


cube.defvjp(lambda z: (z**3, z), lambda z, pull: (3 * z**2 * pull,))


def function(x, y, rows, power=lambda z: z**3):
    z = rows @ y["w"] + y["b"]
    return jnp.mean(jax.nn.softplus(-z)) + jnp.sum(jnp.exp(x) * y["w"] ** 2) + power(y["b"])


def point():
    rng = np.random.default_rng(1)
    draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
    return draw(4), {"w": draw(4), "b": draw()[()] * np.ones((), np.float32)}


@pytest.mark.long
@pytest.mark.parametrize("power", [lambda z: z**3, cube], ids=["plain", "with a rule of its own"])
def test_derivatives_are_those_of_jax(power):
    fn, ops = OnRows(partial(function, power=power), ROWS), OnHost("least")
    x, y = point()
    v = jax.tree.map(lambda leaf: leaf + 1, y)
    close = partial(jax.tree.map, partial(np.testing.assert_allclose, rtol=2e-5, atol=1e-6))
    close(ops.value(fn, x, y), compiled.value(fn, x, y))
    close(ops.value_and_grads(fn, x, y), compiled.value_and_grads(fn, x, y))
    close(ops.value_and_grad_y(fn, x, y), compiled.value_and_grad_y(fn, x, y))
    close(ops.grad_y(fn, x, y), compiled.grad_y(fn, x, y))
    ours, theirs = ops.products(fn, x, y), compiled.products(fn, x, y)
    for wrt in ("x", "y", "xy"):
        close(ours(v, wrt), theirs(v, wrt))
    close(ops.hessian(fn, x, y), compiled.hessian(fn, x, y))
    assert ops.compile_seconds() > 0


@jax.custom_vjp
def twice(z):
    return 2 * z


@jax.custom_vjp
def square(z):
    return jnp.sum(z**2)


@jax.custom_vjp
def called_back(z):
    return jnp.sum(z**2)


def _in_python(z, pull):
    return (pull * jax.pure_callback(lambda a: 2 * np.asarray(a), z, z),)


twice.defvjp(lambda z: (twice(z), None), lambda _, pull: (2 * pull,))
square.defvjp(lambda z: (square(z), z), lambda z, pull: (twice(z) * pull,))
called_back.defvjp(lambda z: (called_back(z), z), _in_python)


def test_reverse_rules_inside_reverse_rules_are_followed_or_refused_in_a_sentence():
    run = lambda power: untuned.minimize(
        lambda x, y: jnp.sum((y - 1) ** 2), lambda x, y: power(y - x), np.zeros(2), np.zeros(2)
    )
    np.testing.assert_allclose(run(square).x, 1, atol=1e-6)
    with pytest.raises(ValueError, match=r'cannot differentiate a function twice .* method="f2sa"'):
        run(called_back)


@pytest.mark.long
def test_columns_a_few_at_a_time_are_the_same_and_end_with_the_time(monkeypatch):
    fn, ops = OnRows(wide, np.ones((50, 20), np.float32)), OnHost("least")
    x, y = np.ones(20, np.float32), np.linspace(-1, 1, 20, dtype=np.float32)
    whole = ops.hessian(fn, x, y)
    monkeypatch.setattr(compiled, "AT_ONCE", 0)  # eight at most, so three times seven
    np.testing.assert_allclose(ops.hessian(fn, x, y), whole, rtol=1e-5, atol=1e-6)
    answers = iter([False, True])
    with watch.over(lambda: next(answers)):
        cut = ops.hessian(fn, x, y)
    np.testing.assert_allclose(cut[:7], whole[:7], rtol=1e-5, atol=1e-6)
    assert not cut[7:].any()


def wide(x, y, rows):
    return jnp.mean(jax.nn.softplus(rows @ y)) + jnp.sum(jnp.exp(x) * y**4)


@pytest.mark.long
def test_torch_makes_the_same_hessian():
    import torch

    from untuned.ops import torch as ops

    rows = torch.as_tensor(np.array(ROWS))

    def fn(x, y):
        z = rows @ y["w"] + y["b"]
        penalty = (torch.exp(x) * y["w"] ** 2).sum()
        return torch.nn.functional.softplus(-z).mean() + penalty + y["b"] ** 3

    x, y = point()
    expected = compiled.hessian(OnRows(function, ROWS), x, y)
    tensors = {name: torch.as_tensor(leaf) for name, leaf in y.items()}
    found = ops.hessian(fn, torch.as_tensor(x), tensors)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
    linear = ops.hessian(lambda x, y: (y["w"] * x).sum(), torch.as_tensor(x), tensors)
    assert not linear.any()


class Point:
    """A node that JAX knows and optree does not."""

    def __init__(self, part):
        self.part = part


jax.tree_util.register_pytree_node(
    Point, lambda node: ((node.part,), None), lambda _, parts: Point(*parts)
)


def test_only_what_can_be_handed_over_is():
    array = jnp.zeros(3)
    assert fits({"a": array, "b": [array, (array,)]}, None)
    assert not fits(Point(array))


def quadratic(tree=lambda leaf: leaf, leaf=lambda tree: tree):
    f = lambda x, y: jnp.sum((leaf(y) - 1.0) ** 2)
    g = lambda x, y: jnp.sum((leaf(y) - leaf(x)) ** 2)
    return f, g, tree(jnp.zeros(3)), tree(jnp.zeros(3))


def chosen(problem, name, **hyperparameters):
    return backend.chosen(problem, untuned.solvers.get(name)(**hyperparameters), 0)


def test_auto_runs_there_and_small_loops_do_not():
    problem = build(*quadratic())
    assert isinstance(chosen(problem, "auto").ops, OnHost)
    for name in ("d-tfbo", "s-tfbo"):
        assert chosen(problem, name) is problem


@reusable
def promised_f(x, y):
    return jnp.sum((y - 1.0) ** 2)


@reusable
def promised_g(x, y):
    return jnp.sum((y - x) ** 2)


def test_reusable_functions_are_there_only_where_compiled_loops_save_nothing(monkeypatch):
    problem = build(promised_f, promised_g, jnp.zeros(3), jnp.zeros(3))
    assert chosen(problem, "d-tfbo") is problem
    monkeypatch.setattr(backend, "SAVES_NOTHING", 0.0)
    monkeypatch.setattr(backend, "LONG_STEP", 0.0)
    assert isinstance(chosen(problem, "d-tfbo").ops, OnHost)


@pytest.mark.parametrize("name", ["ttsa", "mrbo", "sustain"])
def test_a_loop_for_v_alone_is_a_loop_too(name, monkeypatch):
    problem = build(*quadratic())
    monkeypatch.setattr(backend, "WORTH_A_CALL", 0.0)
    monkeypatch.setattr(backend, "LONG_STEP", 0.0)
    assert isinstance(chosen(problem, name, linear_steps=50).ops, OnHost)
    assert chosen(problem, "soba") is problem


@pytest.mark.long
def test_any_tree_reaches_the_solution():
    for tree, leaf in ((lambda a: {"a": a}, lambda t: t["a"]), (Point, lambda t: t.part)):
        result = untuned.minimize(*quadratic(tree, leaf))
        assert result.status == "converged"
        np.testing.assert_allclose(leaf(result.x), 1.0, atol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("constraint", ["simplex", (0.0, 0.4), lambda x: jnp.minimum(x, 0.4)])
def test_constraints(constraint):
    result = untuned.minimize(*quadratic(), constraint=constraint)
    np.testing.assert_allclose(result.x, 1 / 3 if constraint == "simplex" else 0.4, atol=1e-4)


def test_float64_stays_float64():
    result = untuned.minimize(*quadratic()[:2], np.zeros(3), np.zeros(3))
    assert result.x.dtype == np.float64
    np.testing.assert_allclose(result.x, 1.0, atol=1e-9)


def test_turns_of_loops_are_counted_as_far_as_they_are_known():
    y = jnp.ones(50, jnp.float32)
    turn = lambda z, _: (jnp.sin(z) * y, None)
    once = operations(lambda y: jnp.sum(turn(y, None)[0]), y)
    assert once > 0
    repeated = lambda n: lambda y: jnp.sum(jax.lax.scan(turn, y, length=n)[0])
    nested = lambda y: jnp.sum(
        jax.lax.scan(lambda z, _: (z + repeated(30)(z), None), y, None, 7)[0]
    )
    assert operations(repeated(100), y) >= 50 * once
    assert operations(jax.jit(repeated(100)), y) >= 50 * once
    assert operations(nested, y) >= 7 * 15 * once
    unknown = {
        "a loop": lambda y: jax.lax.while_loop(lambda z: z[0] < 9, lambda z: z + 1, y).sum(),
        "Python": lambda y: jax.pure_callback(np.sum, jax.ShapeDtypeStruct((), y.dtype), y),
    }
    for function in unknown.values():
        assert operations(function, y) == np.inf
        assert operations(lambda y, f=function: jax.lax.cond(y[0] > 0, f, jnp.sum, y), y) == np.inf
