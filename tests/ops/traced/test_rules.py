"""Each operation of JAX that NumPy carries out gives the numbers, dtype and shape of JAX itself."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import untuned
from untuned.ops import jax_compiling
from untuned.ops.traced import rules
from untuned.ops.traced.in_numpy import Sheet

ODD = [0.0, -0.0, 1.0, -1.0, 2.5, -3.5, 1e30, -1e30, 300.0, 1e-30, np.inf, -np.inf, np.nan]
NUMBERS = {
    "float32": ODD, "float64": [*ODD, 1e300, -1e300],
    "int32": [0, 1, -1, 7, -8, 2**31 - 1, -(2**31)], "int64": [0, 5, -6, 2**40, -(2**63)],
    "uint32": [0, 1, 9, 2**32 - 1], "int8": [0, 1, -1, 127, -128],
    "uint8": [0, 1, 200, 255], "bool": [False, True],
}  # fmt: skip
SHAPES = [(), (0, 3), (7,), (4, 5)]
PLACES = np.array([-2, 0, 3, 3, 9])  # some are out of range
# A sum of zeros may have either sign, and NumPy's sign of -0.0 is 0.0.
NO_SIGN = {"reduce_sum", "dot_general", "scatter-add", "sign"}
KINDS = ("float32", "int8", "uint8", "bool", "int32")

OF_TWO = {
    "add": lax.add, "sub": lax.sub, "mul": lax.mul, "max": lax.max, "min": lax.min,
    "div": lax.div, "pow": lax.pow, "atan2": lax.atan2, "eq": lax.eq, "ne": lax.ne, "lt": lax.lt,
    "le": lax.le, "gt": lax.gt, "ge": lax.ge, "and": lax.bitwise_and, "or": lax.bitwise_or,
    "xor": lax.bitwise_xor, "concatenate": lambda a, b: jnp.concatenate([a, b, a], a.ndim - 1),
    "stack": lambda a, b: jnp.stack([a, b], -1),
    "select_n": lambda a, b: lax.select(a > b, b, a),
    "clamp": lambda a, b: lax.clamp(b, jnp.subtract(a, 0), jnp.maximum(b, 3).astype(a.dtype)),
    "pow of whole numbers": lambda a, b: a ** jnp.arange(a.size).reshape(a.shape),
    "reduce_and": lambda a, b: jnp.all(a > b), "reduce_or": lambda a, b: jnp.any(a > b),
    "dot_general": lambda a, b: [jnp.vdot(a, b), jnp.tensordot(a, b, 0), a.T @ b],
    "scatter-add": lambda a, b: a.at[PLACES].add(b[:1], mode="drop"),
    "add_any": lambda a, b: jax.vjp(lambda z: (z, z), a)[1]((a, b))[0],
}  # fmt: skip
OF_ONE = {
    **{name: getattr(lax, name) for name in rules.FLOATS if name not in OF_TWO},
    "neg": lax.neg, "abs": lax.abs, "square": lax.square, "sign": lax.sign,
    "is_finite": lax.is_finite,
    "not": lax.bitwise_not, "copy": jnp.copy, "stop_gradient": lax.stop_gradient,
    "copy_p": jnp.copy, "integer_pow": lambda a: [lax.integer_pow(a, k) for k in (0, 1, 2, 3, 7)],
    "integer_pow of negative": lambda a: [lax.integer_pow(a, k) for k in (-1, -2, -3)],
    "broadcast_in_dim": lambda a: lax.broadcast_in_dim(a, (3, *a.shape), range(1, 1 + a.ndim)),
    "reshape": lambda a: a.reshape(-1), "squeeze": lambda a: lax.squeeze(a[None], (0,)),
    "expand_dims": lambda a: lax.expand_dims(a, (a.ndim,)), "transpose": lambda a: a.T,
    "convert_element_type": lambda a: [lax.convert_element_type(a, to) for to in KINDS],
    "reduce_sum": lambda a: [jnp.sum(a), jnp.sum(a, ()), jnp.sum(a[None], 0)],
    "reduce_max": lambda a: [a.max(), a[None].max(0)],
    "reduce_min": lambda a: [a.min(), a[None].min(0)],
    "slice": lambda a: a[1:5:2], "split": lambda a: jnp.split(a, [1, 3]),
    "unstack": lambda a: list(jnp.unstack(a)), "iota": lambda a: lax.iota(a.dtype, 5),
    "gather": lambda a: a.at[PLACES].get(mode="fill"), "rev": lambda a: lax.rev(a, range(a.ndim)),
    "pad": lambda a: lax.pad(a, a.dtype.type(3), [(1, 2, 2)] * a.ndim),
}  # fmt: skip
CALLS = OF_TWO | {name: lambda a, b, of=of: of(a) for name, of in OF_ONE.items()}


def test_every_operation_is_tested():
    assert {*rules.PLAIN, *rules.FLOATS, *rules.WITH_PARAMETERS, *rules.SEVERAL} <= {*CALLS}


@pytest.mark.parametrize("name", CALLS)
def test_an_operation_is_that_of_jax(name):
    function, held = CALLS[name], []
    with jax.enable_x64(True):
        for dtype, shape in itertools.product(NUMBERS, SHAPES):
            rng = np.random.default_rng(0)
            given = tuple(np.asarray(rng.choice(NUMBERS[dtype], shape), dtype) for _ in range(2))
            found = _in_numpy(function, given)
            if found is not None:
                held.append((given, found))
        assert held
        given = [given for given, _ in held]
        every = lambda given: [function(*pair) for pair in given]
        expected = jax.jit(every, compiler_options=jax_compiling.of_effort("least"))(given)
    for (given, found), right in zip(held, expected, strict=True):
        for ours, theirs in zip(*map(jax.tree.leaves, (found, right)), strict=True):
            _compare(ours, np.asarray(theirs), name, f"{given[0].dtype} {given[0].shape}")


def _in_numpy(function, given):
    """What NumPy makes of it; None where JAX has no such operation, or compiles it."""
    try:
        jax.eval_shape(function, *map(jnp.asarray, given))
    except (TypeError, ValueError, IndexError, ZeroDivisionError):
        return None
    sheet = Sheet()
    if not sheet.add("value", lambda x, y: function(*x), (given, given[0])):
        return None
    return sheet.evaluate("value", given, given[0])


def _compare(ours, theirs, name, about):
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), about
    if theirs.dtype.kind != "f":
        np.testing.assert_array_equal(ours, theirs, about)
        return
    # Compiled functions are a few units in the last place apart from NumPy's.
    limits = np.finfo(theirs.dtype)
    np.testing.assert_allclose(ours, theirs, 64 * limits.eps, limits.tiny, err_msg=about)
    if name not in NO_SIGN:
        zero = theirs == 0
        np.testing.assert_array_equal(np.signbit(ours)[zero], np.signbit(theirs)[zero], about)


def test_zeros_of_both_signs_are_two_constants():
    sheet, y = Sheet(), np.ones(3)
    with jax.enable_x64(True):
        assert sheet.add("value", lambda x, y: (y * 0.0, jnp.where(y > 2, 0.0, -0.0)), (y, y))
    assert np.signbit(sheet.evaluate("value", y, y)[1]).all()


def test_a_run_stays_in_the_float_type_of_its_variables():
    def g(x, y):
        return jnp.sum((jnp.float32(0.9) * y[0]) ** jnp.arange(3) * (y - x) ** 2)

    sheet, y = Sheet(), np.ones(3, np.float32)
    assert sheet.add("value_and_grads", g, (y, y))
    found = jax.tree.leaves(sheet.evaluate("value_and_grads", y, 2 * y))
    assert {part.dtype for part in found} == {np.dtype(np.float32)}
    assert untuned.minimize(g, g, y, 2 * y, max_steps=5).y.dtype == np.float32
