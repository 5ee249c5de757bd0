"""JAX's functions in NumPy: the same numbers as compiled, and nothing else than what is known."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import untuned
from untuned.ops import jax_in_numpy, jax_on_host
from untuned.ops.jax_on_host import OnHost
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
        for kind in ("value_and_grads", "along xy", "columns"):
            given = {"along xy": (v,), "columns": (np.eye(size, dtype=dtype),)}.get(kind, ())
            function = jax_on_host._derivative(kind, fn)
            listing = jax_in_numpy.listing(function, x, y, *given, rows)
            assert listing is not None
            found = jax_in_numpy.evaluation(listing)(x, y, *given, rows)
            expected = jax.jit(function)(x, y, *given, rows)
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


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_known_is_left_to_the_compiler(name):
    assert jax_in_numpy.listing(UNKNOWN[name], np.ones(3, np.float32)) is None


def test_labels_out_of_range_give_nan_as_on_jax():
    rows = (jnp.asarray(X, jnp.float32), jnp.asarray(LABELS + 2))
    x, y = np.zeros(18, np.float32), np.ones(18, np.float32)
    listing = jax_in_numpy.listing(softmax, x, y, rows)
    assert np.isnan(jax_in_numpy.evaluation(listing)(x, y, rows))
    assert np.isnan(softmax(x, y, rows))


def test_what_nobody_reads_is_left_out_and_equal_operations_are_done_once():
    def wasteful(y):
        jnp.exp(y).sum()
        return jnp.sin(y) + jnp.sin(y)

    listing = jax_in_numpy.listing(wasteful, np.ones(3, np.float32))
    assert len(listing.operations) == 2
    assert listing.entries == 6


def test_results_are_arrays_of_their_own():
    y = np.ones(3, np.float32)
    found = jax_in_numpy.evaluation(jax_in_numpy.listing(lambda y: (y, y[1:]), y))(y)
    for part in found:
        part += 1
    np.testing.assert_array_equal(y, np.ones(3))


def test_a_run_compiles_nothing(monkeypatch):
    def refuse(*_):
        raise AssertionError("nothing is to be compiled")

    monkeypatch.setattr(OnHost, "_jitted", refuse)
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
    jitted = OnHost._jitted
    monkeypatch.setattr(OnHost, "_jitted", lambda *args: seen.append(args[1]) or jitted(*args))
    fn = OnRows(logistic, (jnp.asarray(X, jnp.float32), jnp.asarray(SIGNS, jnp.float32)))
    x = np.zeros(6, np.float32)
    value = OnHost("least", in_numpy=True).value(fn, x, x)
    assert not seen
    monkeypatch.setattr(jax_on_host, limit, 10)
    assert OnHost("least", in_numpy=True).value(fn, x, x) == pytest.approx(value, rel=1e-5)
    assert seen == ["value"]
