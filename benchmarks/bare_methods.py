"""The tuned methods as bare JAX: their derivative evaluations and updates in one scan, no more.

Each function makes one step: (derivatives, state, rows, options) -> state. A state is a dict of
arrays. Nothing of `untuned` is in here; steps are constant, where decay costs one power a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

RHO, GAMMA = 1e-3, 1e-4  # steps of y and v, and of x: small, so that no run goes far


class Rows(NamedTuple):
    """What a step may draw: `inner(k)` and `outer(k)`, the length p of a series, all rows."""

    inner: Callable
    outer: Callable
    p: Any
    everything: tuple[Any, Any]
    slots: tuple[Any, Any]


class Derivatives:
    """All derivatives a method may ask for, each one expression of JAX's."""

    def __init__(self, outer: Callable, inner: Callable):
        self._outer, self._inner = outer, inner

    def outer(self, x: Any, y: Any, rows: Any) -> tuple:
        value, (in_x, in_y) = jax.value_and_grad(self._outer, argnums=(0, 1))(x, y, rows)
        return value, in_x, in_y

    def grad(self, x: Any, y: Any, rows: Any) -> Any:
        return jax.grad(self._inner, argnums=1)(x, y, rows)

    def grad_x(self, x: Any, y: Any, rows: Any) -> Any:
        return jax.grad(self._inner, argnums=0)(x, y, rows)

    def all(self, x: Any, y: Any, v: Any, rows: Any) -> tuple:
        """grad_y g, (grad_xy g) v and (grad_yy g) v from one vjp."""
        gradient, pull = jax.vjp(lambda x, y: self.grad(x, y, rows), x, y)
        return gradient, *pull(v)

    def hvp(self, x: Any, y: Any, v: Any, rows: Any) -> Any:
        return jax.vjp(lambda y: self.grad(x, y, rows), y)[1](v)[0]

    def cross(self, x: Any, y: Any, v: Any, rows: Any) -> Any:
        return jax.vjp(lambda x: self.grad(x, y, rows), x)[1](v)[0]


def _repeat(count: Any, body: Callable, carry: Any) -> Any:
    return lax.fori_loop(0, count, body, carry)


def soba(d: Derivatives, s: dict, rows: Rows) -> dict:
    x, y, v = s["x"], s["y"], s["v"]
    value, f_x, f_y = d.outer(x, y, rows.outer(0))
    g_y, cross, hvp = d.all(x, y, v, rows.inner(0))
    return s | {
        "x": x - GAMMA * (f_x - cross),
        "y": y - RHO * g_y,
        "v": v - RHO * (hvp - f_y),
        "f": s["f"] + value,
    }


def saba(d: Derivatives, s: dict, rows: Rows) -> dict:
    """With filled memories, and all blocks of one size; a memory is written in the next step."""
    x, y, v = s["x"], s["y"], s["v"]
    value, f_x, f_y = d.outer(x, y, rows.outer(0))
    g_y, cross, hvp = d.all(x, y, v, rows.inner(0))
    inner, g = _saga(s["inner"], rows.slots[0], (g_y, cross, hvp))
    outer, f = _saga(s["outer"], rows.slots[1], (f_x, f_y))
    return s | {
        "x": x - GAMMA * (f[0] - g[1]),
        "y": y - RHO * g[0],
        "v": v - RHO * (g[2] - f[1]),
        "f": s["f"] + value,
        "inner": inner,
        "outer": outer,
    }


def _saga(memory: tuple, b: Any, new: tuple) -> tuple[tuple, tuple]:
    written, last, place, average = memory
    written = jax.tree.map(
        lambda w, row: lax.dynamic_update_index_in_dim(w, row, place, 0), written, last
    )
    old = jax.tree.map(lambda w: lax.dynamic_index_in_dim(w, b, keepdims=False), written)
    count = written[0].shape[0]
    change = jax.tree.map(jnp.subtract, new, old)
    direction = jax.tree.map(jnp.add, change, average)
    average = jax.tree.map(lambda a, c: a + c / count, average, change)
    return (written, new, b, average), direction


def fsla(d: Derivatives, s: dict, rows: Rows) -> dict:
    x, y, v = s["x"], s["y"], s["v"]
    new_y = y - RHO * d.grad(x, y, rows.inner(0))
    value, _, f_y = d.outer(x, new_y, rows.outer(0))
    new_v = v - RHO * (d.hvp(x, new_y, v, rows.inner(1)) - f_y)
    c, b = rows.outer(1), rows.inner(2)
    now = d.outer(x, new_y, c)[1] - d.cross(x, new_y, new_v, b)
    old = d.outer(s["x_before"], y, c)[1] - d.cross(s["x_before"], y, v, b)
    direction = now + 0.5 * (s["d"] - old)
    return s | {
        "x": x - GAMMA * direction,
        "y": new_y,
        "v": new_v,
        "x_before": x,
        "d": direction,
        "f": s["f"] + value,
    }


def _plain(d: Derivatives, s: dict, rows: Rows, solve: Callable, T: int, last: int) -> dict:
    """T steps on y, then v by `solve(y, f_y)`, then x on the batch `last`."""
    x = s["x"]
    y = _repeat(T, lambda k, y: y - RHO * d.grad(x, y, rows.inner(k)), s["y"])
    value, f_x, f_y = d.outer(x, y, rows.outer(0))
    v = solve(y, f_y)
    x = x - GAMMA * (f_x - d.cross(x, y, v, rows.inner(last)))
    return s | {"x": x, "y": y, "v": v, "f": s["f"] + value}


def amigo(d: Derivatives, s: dict, rows: Rows, T: int = 10, n: int = 10) -> dict:
    def solve(y: Any, f_y: Any) -> Any:
        def body(k: Any, v: Any) -> Any:
            return v - RHO * (d.hvp(s["x"], y, v, rows.inner(T + k)) - f_y)

        return _repeat(n, body, s["v"])

    return _plain(d, s, rows, solve, T, T + n)


def stocbio(d: Derivatives, s: dict, rows: Rows, T: int = 10, n: int = 10) -> dict:
    def solve(y: Any, f_y: Any) -> Any:
        return _shia(lambda k, w: d.hvp(s["x"], y, w, rows.inner(T + k)), f_y, n)

    return _plain(d, s, rows, solve, T, T + n)


def aid(d: Derivatives, s: dict, rows: Rows, T: int = 10, n: int = 10) -> dict:
    b = rows.inner(0)

    def solve(y: Any, f_y: Any) -> Any:
        def body(_: Any, carry: tuple) -> tuple:
            v, r, q, rr = carry
            h = d.hvp(s["x"], y, q, b)
            length = rr / jnp.maximum(q @ h, 1e-30)
            v, r = v + length * q, r - length * h
            new = r @ r
            return v, r, r + new / jnp.maximum(rr, 1e-30) * q, new

        r = f_y - d.hvp(s["x"], y, s["v"], b)
        return _repeat(n, body, (s["v"], r, r, r @ r))[0]

    return _plain(d, s, rows._replace(inner=lambda k: b), solve, T, 0)


def itd(d: Derivatives, s: dict, rows: Rows, T: int = 10) -> dict:
    x, b = s["x"], rows.inner(0)

    def forward(y: Any, _: None) -> tuple[Any, Any]:
        return y - RHO * d.grad(x, y, b), y

    second, first = forward(s["y"], None)
    last, path = lax.scan(forward, second, None, length=T - 1)
    value, f_x, f_y = d.outer(x, last, rows.outer(0))

    def backward(carry: tuple, y: Any) -> tuple[tuple, None]:
        h, w = carry
        _, cross, hvp = d.all(x, y, w, b)
        return (h - RHO * cross, w - RHO * hvp), None

    (h, w), _ = lax.scan(backward, (f_x, f_y), path, reverse=True)
    h = h - RHO * d.cross(x, first, w, b)
    return s | {"x": x - GAMMA * h, "y": last, "f": s["f"] + value}


def _shia(product: Callable, b: Any, n: int) -> Any:
    def body(k: Any, carry: tuple) -> tuple:
        w, total = carry
        w = jax.tree.map(lambda w, h: w - RHO * h, w, product(k, w))
        return w, jax.tree.map(jnp.add, total, w)

    return jax.tree.map(lambda total: RHO * total, _repeat(n, body, (b, b))[1])


def _hia(product: Callable, b: Any, n: int, p: Any) -> Any:
    def body(k: Any, w: Any) -> Any:
        return jax.tree.map(lambda w, h: w - RHO * h, w, product(k, w))

    return jax.tree.map(lambda w: n * RHO * w, _repeat(p, body, b))


def bsa(d: Derivatives, s: dict, rows: Rows, T: int = 10, n: int = 10) -> dict:
    x, y = s["x"], s["y"]
    value, f_x, f_y = d.outer(x, y, rows.outer(0))
    v = _hia(lambda k, w: d.hvp(x, y, w, rows.inner(k)), f_y, n, rows.p)
    x = x - GAMMA * (f_x - d.cross(x, y, v, rows.inner(rows.p)))
    y = _repeat(T, lambda k, y: y - RHO * d.grad(x, y, rows.inner(rows.p + 1 + k)), y)
    return s | {"x": x, "y": y, "v": v, "f": s["f"] + value}


def ttsa(d: Derivatives, s: dict, rows: Rows, n: int = 10) -> dict:
    x, b = s["x"], rows.inner(0)
    y = s["y"] - RHO * d.grad(x, s["y"], b)
    value, f_x, f_y = d.outer(x, y, rows.outer(0))
    v = _hia(lambda k, w: d.hvp(x, y, w, rows.inner(1 + k)), f_y, n, rows.p)
    x = x - GAMMA * (f_x - d.cross(x, y, v, b))
    return s | {"x": x, "y": y, "v": v, "f": s["f"] + value}


def f2sa(d: Derivatives, s: dict, rows: Rows, T: int = 10) -> dict:
    x, penalty = s["x"], 1.0

    def body(k: Any, carry: tuple) -> tuple:
        y, z, total = carry
        value, _, f_y = d.outer(x, y, rows.outer(k))
        toward = d.grad(x, y, rows.inner(2 * k))
        away = d.grad(x, z, rows.inner(2 * k + 1))
        return y - RHO * (f_y + penalty * toward), z - RHO * away, total + value

    y, z, total = _repeat(T, body, (s["y"], s["v"], s["f"]))
    value, f_x, _ = d.outer(x, y, rows.outer(T))
    change = d.grad_x(x, y, rows.inner(2 * T)) - d.grad_x(x, z, rows.inner(2 * T + 1))
    return s | {"x": x - GAMMA * (f_x + penalty * change), "y": y, "v": z, "f": total + value}


def _joint(d: Derivatives, points: tuple, b: Any, c: Any, batch: Callable, series: Callable) -> Any:
    """G and D at two points on the same rows, and f at the first."""
    f = [d.outer(x, y, c) for x, y in points]

    def product(k: Any, w: tuple) -> tuple:
        rows = batch(k)
        return tuple(d.hvp(x, y, part, rows) for (x, y), part in zip(points, w, strict=True))

    found = []
    for (x, y), at, v in zip(points, f, series(product, tuple(a[2] for a in f)), strict=True):
        gradient, pull = jax.vjp(lambda x, y=y: d.grad(x, y, b), x)
        found.append((gradient, at[1] - pull(v)[0]))
    return found, f[0][0]


def _momentum(d: Derivatives, s: dict, rows: Rows, series: Callable) -> dict:
    x, y = s["x"], s["y"]
    points = ((x, y), (s["x_before"], s["y_before"]))
    ((G, D), (old_G, old_D)), value = _joint(
        d, points, rows.inner(0), rows.outer(0), lambda k: rows.inner(1 + k), series
    )
    u, h = G + 0.5 * (s["u"] - old_G), D + 0.5 * (s["d"] - old_D)
    return s | {
        "x": x - GAMMA * h,
        "y": y - RHO * u,
        "x_before": x,
        "y_before": y,
        "u": u,
        "d": h,
        "f": s["f"] + value,
    }


def mrbo(d: Derivatives, s: dict, rows: Rows, n: int = 10) -> dict:
    return _momentum(d, s, rows, lambda product, b: _shia(product, b, n))


def sustain(d: Derivatives, s: dict, rows: Rows, n: int = 10) -> dict:
    return _momentum(d, s, rows, lambda product, b: _hia(product, b, n, rows.p))


def vrbo(
    d: Derivatives, s: dict, rows: Rows, T: int = 10, n: int = 10, period: int = 50
) -> dict:  # fmt: skip
    x, y = s["x"], s["y"]

    def series(product: Callable, b: Any) -> Any:
        return _shia(product, b, n)

    def refresh() -> tuple:
        b, c = rows.everything
        (found,), _ = _joint(d, ((x, y),), b, c, lambda k: b, series)
        return found

    u, h = lax.cond(s["t"] % period == 0, refresh, lambda: (s["u"], s["d"]))
    new_x = x - GAMMA * h

    def visit(j: Any, carry: tuple) -> tuple:
        before, y, u, h, _ = carry
        at = (1 + n) * j
        ((G, D), (old_G, old_D)), value = _joint(
            d,
            ((new_x, y), before),
            rows.inner(at),
            rows.outer(j),
            lambda k: rows.inner(at + 1 + k),
            series,
        )
        u, h = u + G - old_G, h + D - old_D
        return (new_x, y), jnp.where(j < T, y - RHO * u, y), u, h, value

    _, y, u, h, value = _repeat(T + 1, visit, ((x, y), y, u, h, s["f"]))
    return s | {"x": new_x, "y": y, "u": u, "d": h, "f": s["f"] + value, "t": s["t"] + 1}


METHODS: dict[str, Callable[..., dict]] = {
    "aid": aid,
    "amigo": amigo,
    "bsa": bsa,
    "f2sa": f2sa,
    "fsla": fsla,
    "itd": itd,
    "mrbo": mrbo,
    "saba": saba,
    "soba": soba,
    "stocbio": stocbio,
    "sustain": sustain,
    "ttsa": ttsa,
    "vrbo": vrbo,
}
