"""JAX's functions in NumPy: the same numbers as compiled, and nothing else than what is known."""

from __future__ import annotations

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import untuned
from untuned.ops import jax_on_host
from untuned.ops.jax_on_host import OnHost
from untuned.ops.traced import in_numpy
from untuned.ops.traced.in_numpy import Sheet, derivative
from untuned.problem.derivatives import OnRows

RNG = np.random.default_rng(0)
X, LABELS = RNG.normal(size=(30, 6)), RNG.integers(0, 3, 30)
SIGNS = np.where(LABELS > 0, 1.0, -1.0)


def logistic(x, y, rows):
    return jnp.mean(jax.nn.softplus(-rows[1] * (rows[0] @ y))) + jnp.sum(jnp.exp(x) * y**2)


def squares(x, y, rows):
    return jnp.mean((rows[0] @ y - rows[1]) ** 2) / 2 + jax.nn.sigmoid(x).sum() * jnp.sum(y**3)


def softmax(x, y, rows):
    z = rows[0] @ y.reshape(6, 3)
    picked = jnp.take_along_axis(z, rows[1][:, None], 1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(z, axis=1) - picked) + jnp.sum(jnp.exp(x) * y**2)


def one_hot(x, y, rows):
    z = rows[0] @ y.reshape(6, 3)
    right = jax.nn.one_hot(rows[1], 3, dtype=z.dtype)
    return -jnp.mean(jnp.sum(right * jax.nn.log_softmax(z), 1)) + jnp.sum(jnp.exp(x) * y**2)


def network(x, y, rows):
    first, second = y[:12].reshape(6, 2), y[12:16].reshape(2, 2)
    hidden = jnp.tanh(rows[0] @ first) + jnp.maximum(rows[0][:, :2], 0.1)
    out = jnp.concatenate([hidden @ second, hidden[:, ::2] * y[16]], 1)
    both = jnp.einsum("ri,rij->rj", hidden, jnp.stack([hidden, out[:, :2]], 2))
    return jnp.mean(jnp.sqrt(1 + out**2)) + jnp.mean(both**4) + jnp.sum(jnp.abs(y) ** 1.5 * x[0])


def _units(size, dtype, start=0, count=None):
    """Unit vectors, with zeros after the last as where columns are made some at a time."""
    return np.eye(size + 2, size, dtype=dtype)[start : start + (count or size + 2)]


CASES = [
    (logistic, 6, SIGNS), (squares, 6, SIGNS), (softmax, 18, LABELS), (one_hot, 18, LABELS),
    (network, 17, SIGNS),
]  # fmt: skip


@pytest.mark.parametrize(("fn", "size", "targets"), CASES, ids=[case[0].__name__ for case in CASES])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.long
def test_derivatives_are_those_of_compiled_programs(fn, size, targets, dtype):
    rng = np.random.default_rng(1)
    x, y, v = (rng.normal(size=size).astype(dtype) / 2 for _ in range(3))
    targets = targets.astype(dtype) if targets.dtype.kind == "f" else targets
    tolerance = 1e-4 if dtype is np.float32 else 1e-12
    with jax.enable_x64(dtype is np.float64):
        rows = (jnp.asarray(X.astype(dtype)), jnp.asarray(targets))
        sheet, vectors = Sheet(), {"along xy": (v,), "columns": (_units(size, dtype),)}
        compiled = {}
        for kind in ("value_and_grads", *vectors):
            assert sheet.add(kind, fn, (x, y, *vectors.get(kind, ()), rows))
            compiled[kind] = jax.jit(derivative(kind, fn))
        # At another x with the same y, and the other way round, some results are known.
        for point in ((x, y), (y, y), (x, y), (x, x)):
            for kind, program in compiled.items():
                given = vectors.get(kind, ())
                found = sheet.evaluate(kind, *point, *given, rows)
                expected = program(*point, *given, rows)
                assert jax.tree.structure(found) == jax.tree.structure(expected)
                for ours, theirs in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
                    assert isinstance(ours, np.ndarray)
                    assert ours.dtype == dtype
                    scale = np.abs(theirs).max()
                    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * scale)


UNKNOWN = {
    "another operation": lambda y: jnp.sort(y).sum(),
    "a loop": lambda y: jax.lax.fori_loop(0, 3, lambda _, z: z * y.sum(), 1.0),
    "whole numbers divided": lambda y: jnp.asarray(3) // jnp.asarray(2) * y.sum(),
    "sixteen bits": lambda y: y.astype(jnp.bfloat16).sum(),
    "a word to the user": lambda y: [jax.debug.print("{}", y), y.sum()][1],
}


def _alone(function, y):
    return Sheet().add("value", lambda x, y: function(y), (y, y))


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_known_is_left_to_the_compiler(name):
    assert not _alone(UNKNOWN[name], np.ones(3, np.float32))
    assert _alone(jnp.sum, np.ones(3, np.float32))


def _counted(sheet, kind, *arguments):
    """A result, and how many operations it took."""
    done, plan = [], sheet._plan
    sheet._plan = lambda *key: done.append(plan(*key)) or done[-1]
    found = sheet.evaluate(kind, *arguments)
    sheet._plan = plan
    return found, len(done[0].steps)


def test_what_nobody_reads_is_left_out_and_equal_operations_are_done_once():
    def wasteful(x, y):
        jnp.exp(y).sum()
        return jnp.sin(y) + jnp.sin(y)

    sheet, y = Sheet(), np.ones(3, np.float32)
    sheet.add("value", wasteful, (y, y))
    assert _counted(sheet, "value", y, y)[1] == 2


def test_results_are_arrays_of_their_own():
    y, sheet = np.ones(3, np.float32), Sheet()
    sheet.add("value", lambda x, y: (y, y[1:], 2 * y), (y, y))
    for _ in range(2):
        found = sheet.evaluate("value", y, y)
        np.testing.assert_array_equal(found[2], 2 * np.ones(3))
        for part in found:
            part += 1
    np.testing.assert_array_equal(y, np.ones(3))


def _sheet(fn, x, y, rows, *kinds):
    sheet = Sheet()
    for kind in kinds:
        given = {"columns": (_units(len(y), y.dtype, 0, 3),), "along y": (y,)}.get(kind, ())
        assert sheet.add(kind, fn, (x, y, *given, rows))
    return sheet


@pytest.fixture
def example():
    rng = np.random.default_rng(2)
    return (*rng.normal(size=(3, 6)).astype(np.float32), (jnp.asarray(X, jnp.float32), SIGNS32))


SIGNS32 = jnp.asarray(SIGNS, jnp.float32)


def test_only_what_depends_on_a_changed_argument_is_done_again(example):
    x, y, v, rows = example
    sheet = _sheet(logistic, x, y, rows, "value_and_grad_y", "along y")
    first, in_all = _counted(sheet, "value_and_grad_y", x, y, rows)
    again, none = _counted(sheet, "value_and_grad_y", x.copy(), y.copy(), rows)
    assert none == 0
    np.testing.assert_array_equal(again[1], first[1])
    moved, of_x = _counted(sheet, "value_and_grad_y", x + 1, y, rows)
    assert 0 < of_x < in_all / 2
    np.testing.assert_allclose(moved[1], jax.grad(logistic, 1)(x + 1, y, rows), rtol=1e-5)
    # A first product at a known point finds the rows' part there; further ones find the scaling.
    assert (
        _counted(sheet, "along y", x + 1, y, v, rows)[1]
        > (_counted(sheet, "along y", x + 1, y, 2 * v, rows)[1])
    )
    other = (rows[0][::-1], rows[1])
    found, all_again = _counted(sheet, "value_and_grad_y", x + 1, y, other)
    assert all_again > of_x
    np.testing.assert_allclose(found[1], jax.grad(logistic, 1)(x + 1, y, other), rtol=1e-5)


def test_a_quadratic_function_has_its_hessian_made_once(example):
    x, y, _, rows = example
    fn = lambda x, y, rows: jnp.mean((rows[0] @ y - rows[1]) ** 2) + jnp.sum(jnp.exp(x) * y**2)
    sheet = _sheet(fn, x, y, rows, "columns", "along y")
    assert sheet.price(6, True) < sheet.price(6, False) / 2
    blocks = [_units(6, np.float32, k, 3) for k in (0, 3)]
    for point in ((x, y), (x + 1, y - 1)):
        found = np.concatenate([sheet.evaluate("columns", *point, u, rows) for u in blocks])
        expected = jax.hessian(fn, 1)(*point, rows)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_linear_model_scales_rows_by_one_factor_for_all_columns(example):
    x, y, _, rows = example
    sheet = _sheet(logistic, x, y, rows, "columns")
    reader, large = sheet._reader, X.shape[0] * 3
    steps = sheet._reader.needed(sheet._listings["columns"].outputs)
    assert sum(step.entries == large for step in steps) == 1  # the factor's product with X
    assert sum(step.factor > 0 for step in steps) == 2  # X y, and X^T with that
    assert not any(step.factor == 0 and step.writes in reader.views for step in steps if step.work)


def test_what_is_kept_takes_no_more_than_half_of_the_rows(monkeypatch, example):
    x, y, _, rows = example
    monkeypatch.setattr(in_numpy, "FEW", 0)
    sheet = _sheet(softplus_of_many, x, y, rows, "value_and_grad_y", "along y", "columns")
    sheet.evaluate("value_and_grad_y", x, y, rows)
    sheet.evaluate("along y", x, y, y, rows)
    sheet.evaluate("columns", x, y, _units(6, np.float32, 0, 3), rows)
    kept = sum(array.nbytes for known in sheet._known.values() for array in known.values())
    assert 0 < sheet._kept <= 0.5 * sum(leaf.nbytes for leaf in rows)
    assert sheet._kept <= kept


def softplus_of_many(x, y, rows):
    """Whose results of a row are many."""
    z = jax.nn.softplus(rows[0] * y)
    return jnp.mean(jnp.sum(z**2, 1) * jnp.exp(z[:, 0])) + jnp.sum(jnp.exp(x) * y**2)


def test_a_function_is_traced_for_what_is_asked_of_it_alone(example):
    x, y, v, rows = example
    calls = []

    def counted(x, y, rows):
        calls.append(gc.isenabled())
        return logistic(x, y, rows)

    ops, fn = OnHost("least", in_numpy=True), OnRows(counted, rows)
    products = ops.products(fn, x, y)
    along = products(v, "x"), products(v, "y")
    value, in_y = ops.value_and_grad_y(fn, x, y)
    assert ops.value(fn, x, y) == value
    hessian = ops.hessian(fn, x, y)
    # One after another; Python looks for no garbage meanwhile.
    assert calls == [False] * 5
    assert gc.isenabled()
    np.testing.assert_allclose(in_y, jax.grad(logistic, 1)(x, y, rows), rtol=1e-5)
    np.testing.assert_allclose(hessian @ v, along[1], rtol=1e-4)
    np.testing.assert_allclose(
        along[0], jax.jacobian(jax.grad(logistic, 1), 0)(x, y, rows).T @ v, rtol=1e-4
    )


def test_what_has_no_derivative_in_x_has_one_in_y():
    """As none is asked for in x, nothing is wrong."""

    def fn(x, y):
        turns = jax.lax.while_loop(lambda z: z.sum() < 9, lambda z: z + 1, x)
        return (turns * y**2).sum()

    ops, x = OnHost("least", in_numpy=True), np.ones(2)
    np.testing.assert_allclose(ops.products(fn, x, x)(x, "y"), 2 * 5 * x)
    np.testing.assert_allclose(ops.grad_y(fn, x, x), 2 * 5 * x)
    with pytest.raises(ValueError, match="Reverse-mode differentiation does not work"):
        ops.products(fn, x, x)(x, "x")


def test_garbage_is_not_collected_afterwards_where_it_was_not_before():
    gc.disable()
    try:
        OnHost("least", in_numpy=True).value(lambda x, y: (x * y).sum(), np.ones(2), np.ones(2))
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_callback_may_change_what_it_is_given():
    def run(callback):
        data = (X, SIGNS)
        f = lambda x, y, rows: logistic(0 * x - 99, y, rows)
        return untuned.minimize(
            f, logistic, np.full(6, -2.0), np.zeros(6), outer_data=data, inner_data=data,
            max_steps=5, callback=callback,
        )  # fmt: skip

    def spoil(snapshot):
        for array in (snapshot.x, snapshot.y, snapshot.v):
            array += 1

    np.testing.assert_array_equal(run(spoil).x, run(None).x)


def test_a_run_compiles_nothing(monkeypatch):
    def refuse(*_):
        raise AssertionError("nothing is to be compiled")

    monkeypatch.setattr(OnHost, "_compiled", refuse)
    f = lambda x, y, rows: logistic(0 * x - 99, y, rows)
    data = (X.astype(np.float32), SIGNS.astype(np.float32))
    result = untuned.minimize(
        f, logistic, np.full(6, -2, np.float32), np.zeros(6, np.float32), outer_data=data,
        inner_data=data,
    )  # fmt: skip
    assert result.status == "converged"


@pytest.mark.parametrize("limit", ["MANY", "LARGE"])
def test_many_results_and_large_factors_are_compiled(monkeypatch, limit):
    seen = []
    jitted = OnHost._compiled
    monkeypatch.setattr(OnHost, "_compiled", lambda *args: seen.append(args[1]) or jitted(*args))
    fn = OnRows(logistic, (jnp.asarray(X, jnp.float32), jnp.asarray(SIGNS, jnp.float32)))
    x = np.zeros(6, np.float32)
    value = OnHost("least", in_numpy=True).value(fn, x, x)
    assert not seen
    monkeypatch.setattr(jax_on_host, limit, 10)
    monkeypatch.setattr(jax_on_host.threads, "allowed", lambda: 2)
    assert OnHost("least", in_numpy=True).value(fn, x, x) == pytest.approx(value, rel=1e-5)
    assert seen == ["value"]
    monkeypatch.setattr(jax_on_host.threads, "allowed", lambda: 1)  # no more threads to be had
    OnHost("least", in_numpy=True).value(fn, x, x)
    assert len(seen) == (2 if limit == "MANY" else 1)


def test_constants_of_derivatives_that_are_traced_one_after_another_are_told_apart(monkeypatch):
    monkeypatch.setattr(in_numpy, "derivative", lambda kind, function: function)
    sheet, y = Sheet(), np.ones(3, np.float32)
    for k in range(20):  # each array goes after its trace, and the next may be at its address
        constant = lambda k=k: jnp.full(3, k, jnp.float32)
        assert sheet.add(f"value {k}", lambda x, y, c=constant: (c() * y).sum(), (y, y))
    for k in range(20):
        assert sheet.evaluate(f"value {k}", y, y) == 3 * k
