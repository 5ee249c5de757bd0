"""Least squares: two passes over the rows as a product with a matrix that is made once."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import untuned
from untuned.ops.traced import regrouping
from untuned.ops.traced.in_numpy import Sheet, derivative
from untuned.ops.traced.tangents import V, X, Y
from untuned.util import watch

RNG = np.random.default_rng(0)
COUNT, SIZE = 60, 4
ROWS = (
    RNG.normal(size=(COUNT, SIZE)), RNG.normal(size=COUNT), RNG.uniform(size=COUNT),
    RNG.normal(size=(COUNT, 3)),
)  # fmt: skip


def penalty(x, y):
    return jnp.sum(jnp.exp(x)[:SIZE] * jnp.square(y.reshape(SIZE, -1)).sum(1))


# Each is (function, shape of y): how people write least squares.
QUADRATIC = {
    "a mean": (lambda x, y, r: jnp.mean((r[0] @ y - r[1]) ** 2) / 2, SIZE),
    "targets first": (lambda x, y, r: jnp.mean((r[1] - r[0] @ y) ** 2), SIZE),
    "from the left": (lambda x, y, r: jnp.sum(jnp.square(y @ r[0].T - r[1])), SIZE),
    "squared by hand": (lambda x, y, r: jnp.sum((r[0] @ y - r[1]) * (r[0] @ y - r[1])), SIZE),
    "weighted": (lambda x, y, r: jnp.mean(r[2] * (r[0] @ y - r[1]) ** 2), SIZE),
    "weights divided": (lambda x, y, r: jnp.sum(((r[0] @ y - r[1]) / (1 + r[2])) ** 2), SIZE),
    "a number off": (lambda x, y, r: jnp.mean((r[0] @ y - r[1] - 0.5) ** 2), SIZE),
    "several targets": (lambda x, y, r: jnp.mean((r[0] @ y - r[3]) ** 2), (SIZE, 3)),
    "in another order": (lambda x, y, r: jnp.mean((y.T @ r[0].T - r[3].T) ** 2), (SIZE, 3)),
    "scaled by x": (lambda x, y, r: jnp.mean((r[0] @ (jnp.tanh(x) * y) - r[1]) ** 2), SIZE),
}
# In these rows and variables meet in another way, or there are more terms than one.
OTHERS = {
    "a product": (lambda x, y, r: (r[0] @ y - r[1]) @ (r[0] @ y - r[1]), SIZE),
    "an intercept": (lambda x, y, r: jnp.mean((r[0][:, 1:] @ y[1:] + y[0] - r[1]) ** 2), SIZE),
    "weights of x": (lambda x, y, r: jnp.mean(jnp.exp(x[0] * r[2]) * (r[0] @ y - r[1]) ** 2), SIZE),
    "weights of a class": (lambda x, y, r: jnp.mean(r[3] ** 2 * (r[0] @ y) ** 2), (SIZE, 3)),
    "a fourth power": (lambda x, y, r: jnp.mean((r[0] @ y - r[1]) ** 4), SIZE),
    "logistic": (lambda x, y, r: jnp.mean(jax.nn.softplus(r[0] @ y * r[1])), SIZE),
}


def _sheet(fn, y):
    x, rows = np.zeros(SIZE), tuple(map(jnp.asarray, ROWS))
    given = {
        "along y": (y,), "along xy": (y,), "columns": (np.eye(y.size),), "value_and_grads": (),
    }  # fmt: skip
    sheet, whole = Sheet(), lambda x, y, r: fn(x, y, r) + penalty(x, y)
    for kind, more in given.items():
        assert sheet.add(kind, whole, (x, y, *more, rows))
    return sheet, whole, rows, given


@pytest.mark.parametrize("name", [*QUADRATIC, *OTHERS])
def test_the_numbers_are_those_of_jax(name):
    fn, shape = (QUADRATIC | OTHERS)[name]
    rng = np.random.default_rng(1)
    with jax.enable_x64(True):
        sheet, whole, rows, given = _sheet(fn, np.zeros(shape))
        for other in (rows, (rows[0][::-1], *rows[1:])):
            for _ in range(2):
                x, y = rng.normal(size=SIZE), rng.normal(size=shape)
                for kind, more in given.items():
                    more = (rng.normal(size=shape),) if "along" in kind else more
                    found = sheet.evaluate(kind, x, y, *more, other)
                    expected = derivative(kind, whole)(x, y, *more, other)
                    for ours, theirs in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
                        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-11)


def _passes(sheet, kind):
    """Products with the rows that are made again for another x, y or vector."""
    uses = sheet._reader.uses
    steps = sheet._reader.needed(sheet._listings[kind].outputs)
    return sum(s.factor >= COUNT * (SIZE - 1) and uses[s.writes] & (X | Y | V) > 0 for s in steps)


@pytest.mark.parametrize("name", [*QUADRATIC, *OTHERS])
def test_products_of_least_squares_read_no_rows(name):
    fn, shape = (QUADRATIC | OTHERS)[name]
    with jax.enable_x64(True):
        sheet, *_ = _sheet(fn, np.ones(shape))
    found = [_passes(sheet, kind) for kind in ("along y", "columns", "value_and_grads")]
    if name in QUADRATIC:
        assert found[:2] == [0, 0]
        assert found[2] >= 2
    else:
        assert min(found[0], found[2]) == 2


def test_a_matrix_that_would_take_more_memory_or_time_than_it_saves_is_not_made(monkeypatch):
    fn, y = QUADRATIC["a mean"][0], np.zeros(SIZE)
    with jax.enable_x64(True):
        for limit, value in (("FEWER", COUNT / SIZE + 1), ("MOST_VARIABLES", SIZE - 1)):
            monkeypatch.setattr(regrouping, limit, value)
            sheet, *_ = _sheet(fn, y)
            assert not sheet._reader.lasting
            monkeypatch.undo()
        assert _sheet(fn, y)[0]._reader.lasting


def test_a_matrix_is_made_some_columns_at_a_time_until_time_is_up(monkeypatch):
    monkeypatch.setattr(regrouping, "AT_ONCE", 1)
    with jax.enable_x64(True):
        sheet, whole, rows, _ = _sheet(QUADRATIC["a mean"][0], np.zeros(SIZE))
        x, y = np.ones(SIZE), np.ones(SIZE)
        asked = []
        with watch.over(lambda: asked.append(1) or len(asked) > 2):
            found = sheet.evaluate("along xy", x, y, y, rows)
        assert len(asked) == 3
        np.testing.assert_array_equal(found[1], np.zeros(SIZE))
        found = sheet.evaluate("along xy", x, y, y, rows)
        np.testing.assert_allclose(found[1], derivative("along y", whole)(x, y, y, rows))


def test_rows_without_noise_are_fitted():
    """Where y fits exactly a value from the matrix would be all rounding."""
    rng = np.random.default_rng(3)
    columns, truth = rng.normal(size=(400, 5)), rng.normal(size=5)
    data = (columns, columns @ truth)
    f = lambda x, y, rows: jnp.mean((rows[0] @ y - rows[1]) ** 2)
    g = lambda x, y, rows: f(x, y, rows) + jnp.sum(jnp.exp(x) * y**2)
    result = untuned.minimize(
        f, g, np.full(5, -2.0), np.zeros(5), outer_data=data, inner_data=data, tol=1e-10
    )  # fmt: skip
    assert result.status == "converged"
    assert np.mean((columns @ (result.y - truth)) ** 2) < 1e-10
