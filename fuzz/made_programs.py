"""Random bilevel programs: f and g of random parts, on random rows, in the words of any library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

DECAY, MANY, CLASSES, GROUPS = 0.9, 2**33, 3, 4
LARGE, MANY_ROWS = 0.04, 40_000


class Words(NamedTuple):
    """What a program says, in one library."""

    np: Any  # the library's functions that are called alike in both
    softplus: Callable
    logsumexp: Callable
    sort: Callable
    segment_sum: Callable  # (values, groups)
    arange: Callable


@jax.custom_vjp
def _softplus(z):
    return jnp.logaddexp(z, 0.0)


_softplus.defvjp(lambda z: (_softplus(z), z), lambda z, up: (up * jax.nn.sigmoid(z),))


def on_jax(own_rule: bool = False) -> Words:
    return Words(
        jnp, _softplus if own_rule else jax.nn.softplus,
        lambda z: jax.nn.logsumexp(z, axis=-1), jnp.sort,
        lambda values, groups: jax.ops.segment_sum(values, groups, GROUPS), jnp.arange,
    )  # fmt: skip


def on_torch() -> Words:
    return Words(
        torch, torch.nn.functional.softplus,
        lambda z: torch.logsumexp(z, -1), lambda z: torch.sort(z).values,
        lambda values, groups: torch.zeros(GROUPS, dtype=values.dtype).index_add(0, groups, values),
        torch.arange,
    )  # fmt: skip


# Losses of predictions and targets, each row's own.
LOSSES: dict[str, Callable] = {
    "squares": lambda w, z, b: (z - b["t"]) ** 2 / 2,
    "logistic": lambda w, z, b: w.softplus(-b["sign"] * z),
    "softmax": lambda w, z, b: w.logsumexp(z) - z[w.arange(len(b["label"])), b["label"]],
    "poisson": lambda w, z, b: w.np.exp(z) - b["count"] * z,
    "pseudo-huber": lambda w, z, b: w.np.sqrt(1 + (z - b["t"]) ** 2),
    "huber": lambda w, z, b: w.np.where(
        abs(z - b["t"]) < 1, (z - b["t"]) ** 2 / 2, abs(z - b["t"]) - 0.5
    ),
    "log-cosh": lambda w, z, b: w.softplus(2 * (z - b["t"])) - (z - b["t"]),
}
# How coefficients make predictions of rows.
MODELS: dict[str, Callable] = {
    "plain": lambda w, X, y: X @ y,
    "einsum": lambda w, X, y: w.np.einsum("ij,j...->i...", X, y),
    "decayed": lambda w, X, y: X @ (y.T * DECAY ** w.arange(y.shape[0])).T,
    "cumulated": lambda w, X, y: X @ w.np.cumsum(y, 0),
    "reversed": lambda w, X, y: w.np.flip(X, (1,)) @ w.np.flip(y, (0,)),
    "network": lambda w, X, y: w.np.tanh(X @ y) @ w.np.ones_like(y[0]),
}
# How an entry of x is a strength above zero.
STRENGTHS: dict[str, Callable] = {
    "exp": lambda w, x: w.np.exp(x),
    "softplus": lambda w, x: w.softplus(x) + 1e-3,
    "squares": lambda w, x: x**2 + 1e-2,
}
# How much a row counts.
WEIGHTS: dict[str, Callable] = {
    "equal": lambda w, x, b: 1.0,
    "sigmoid": lambda w, x, b: (
        0.01 + w.np.sigmoid(x[b["index"]])
        if w.np is torch
        else 0.01 + jax.nn.sigmoid(x[b["index"]])
    ),
    "by class": lambda w, x, b: w.np.exp(x[b["label"]]),
    "decay": lambda w, x, b: DECAY ** w.arange(len(b["t"])),
    "big ids": lambda w, x, b: w.np.where(b["big"] % 7 == b["rest"], 1.0, 5.0),
    "bytes": lambda w, x, b: 1.0 + b["byte"],
    "mask": lambda w, x, b: w.np.where(b["mask"], 1.0, 0.2),
}
# Terms that are convex in nothing; what they make of derivatives is compared, no solution.
ODD: list[Callable] = [
    lambda w, z: w.np.tanh(z),
    lambda w, z: w.np.sin(z) * w.np.cos(2 * z),
    lambda w, z: w.sort(z) * w.arange(len(z)),
    lambda w, z: w.np.cumsum(z, 0) / (1 + z**2),
    lambda w, z: w.np.where(z > 0, z, 0.1 * z) ** 3,
    lambda w, z: w.np.log1p(z**2) * w.np.exp(-abs(z)),
    lambda w, z: w.logsumexp(z) + 0 * z,
    lambda w, z: w.np.concatenate([z[1:], z[:1]]) * z,
    lambda w, z: (
        w.np.stack([z, z**2, w.np.ones_like(z)], -1) @ w.np.ones_like(z)[:1].expand(3)
        if w.np is torch
        else jnp.stack([z, z**2, jnp.ones_like(z)], -1) @ jnp.ones_like(z)[:1].repeat(3)
    ),
    lambda w, z: w.np.prod(1 + 0.1 * w.np.tanh(z[:3])) + z * 0,
    lambda w, z: w.np.floor(z) * z,
    lambda w, z: z[0] * z / (1 + abs(z[-1])),
]
UNBOUNDED: list[Callable] = [
    lambda x, y: -(y**2).sum() + x.sum() * y.sum(),
    lambda x, y: (y * (1 + x.sum() ** 2)).sum(),
    lambda x, y: (y**3).sum() + x.sum() * y.sum(),
]


class Program(NamedTuple):
    """A bilevel program in NumPy's arrays of float64, and f and g in the words of a library."""

    told: str
    outer: Callable[[Words], Callable]
    inner: Callable[[Words], Callable]
    x0: Any
    y0: Any
    data: tuple[Any, Any]  # outer, inner
    is_exact: bool  # g has one solution for each x
    is_bounded: bool  # g has any


def table(rng: np.random.Generator, rows: int, columns: int, odd: bool) -> dict[str, np.ndarray]:
    """Rows with features of every kind, and targets that a linear model explains in part."""
    X = rng.standard_normal((rows, columns))
    good = X.copy()
    for each in range(columns) if odd else ():
        kind = rng.choice(["plain", "year", "scaled", "collinear", "constant", "sparse"])
        if kind == "year":
            X[:, each] = 2000 + 6 * X[:, each]
        elif kind == "scaled":
            X[:, each] *= 10 ** rng.uniform(-6, 3)
        elif kind == "collinear" and each:
            X[:, each] = X[:, each - 1] + 1e-3 * X[:, each]
        elif kind == "constant":
            X[:, each] = 1.0
        elif kind == "sparse":
            X[:, each] *= rng.random(rows) < 0.1
    z = good @ rng.standard_normal(columns)
    noise = rng.standard_normal(rows)
    return {
        "X": X, "t": z + 0.3 * noise, "sign": np.where(z + noise > 0, 1.0, -1.0),
        "label": rng.integers(0, CLASSES, rows),
        "count": rng.poisson(np.exp(np.clip(z, -2, 2))).astype(float),
        "index": np.arange(rows), "group": rng.integers(0, GROUPS, rows),
        "big": MANY + rng.integers(0, 1000, rows), "rest": np.full(rows, 3),
        "byte": rng.integers(0, 3, rows).astype(np.uint8), "mask": rng.random(rows) < 0.5,
    }  # fmt: skip


def draw(rng: np.random.Generator) -> Program:
    if rng.random() < 0.03:
        return _unbounded(rng)
    rows, columns = int(rng.integers(8, 60)), int(rng.integers(1, 7))
    pick = lambda choices: str(rng.choice(list(choices)))
    loss, model = pick(LOSSES), pick(MODELS) if rng.random() < 0.6 else "plain"
    loss = "squares" if rng.random() < 0.25 else loss
    if model == "network":
        loss = "squares" if loss in ("softmax", "poisson") else loss
    strength, weight = pick(STRENGTHS), pick(WEIGHTS) if rng.random() < 0.6 else "equal"
    odd = [ODD[k] for k in rng.integers(0, len(ODD), 2)]
    where = str(rng.choice(["nowhere", "f", "g"], p=[0.7, 0.15, 0.15]))
    ill = rng.random() < 0.35 and loss != "poisson" and where == "nowhere" and model != "network"
    shared, has_intercept = rng.random() < 0.3, rng.random() < 0.4 and model == "plain"
    has_empty, segments = rng.random() < 0.1, rng.random() < 0.1
    shape = {"softmax": (columns, CLASSES), "network": (columns, 2)}
    y_shape = shape.get(loss if loss == "softmax" else model, (columns,))
    tree = str(rng.choice(["dict", "tuple", "list", "array"]))
    if has_intercept or has_empty:
        tree = "dict" if tree == "array" else tree
    if weight != "sigmoid" and rng.random() < LARGE:
        rows = MANY_ROWS  # from where products with the rows are kept
    used = {"sigmoid": rows, "by class": CLASSES}.get(weight)
    pack, unpack = _trees(tree)
    x_parts = {"strength": np.full(() if shared else columns, 0.3)}
    if used:
        x_parts["weight"] = np.zeros(used)
    y_parts = {"coef": 0.1 * rng.standard_normal(y_shape) if model == "network" else
               np.zeros(y_shape)}  # fmt: skip
    if has_intercept:
        y_parts["intercept"] = np.zeros(y_shape[1:])
    if has_empty:
        y_parts["empty"] = np.zeros(0)
    x_pack, x_unpack = _trees("dict" if used and tree == "array" else tree)
    x_names, y_names = list(x_parts), list(y_parts)
    pull = 10 ** rng.uniform(-3, -1)

    def predicted(w, y, b):
        z = MODELS[model](w, b["X"], y["coef"])
        return z + y["intercept"] if has_intercept else z

    def losses(w, y, b):
        each = LOSSES[loss](w, predicted(w, y, b), b)
        return w.segment_sum(each, b["group"]) / len(b["t"]) if segments else each / len(b["t"])

    def outer(w):
        def f(x, y, b):
            x, y = x_unpack(x, x_names), y_unpack(y, y_names)
            value = losses(w, y, b).sum() + pull * sum((part**2).sum() for part in x.values())
            if where == "f":
                value = value + 0.1 * sum(term(w, y["coef"].reshape(-1)).mean() for term in odd)
            return value

        return f

    def inner(w):
        def g(x, y, b):
            x, y = x_unpack(x, x_names), y_unpack(y, y_names)
            each = LOSSES[loss](w, predicted(w, y, b), b)
            weights = WEIGHTS[weight](w, x.get("weight"), b)
            value = (weights * each).mean()
            lam = STRENGTHS[strength](w, x["strength"])
            squares = (y["coef"].reshape(columns, -1) ** 2).sum(-1)
            value = value + (lam * squares).sum() / 2
            if has_intercept:
                value = value + 1e-3 * (y["intercept"] ** 2).sum()
            if where == "g":
                value = value + 0.05 * sum(term(w, y["coef"].reshape(-1)).mean() for term in odd)
            return value

        return g

    y_unpack = unpack
    told = (
        f"{loss} {model} strength={strength}{' shared' * shared} weight={weight} odd={where} "
        f"{'ill ' * ill}{tree} rows={rows} columns={columns}"
    )
    trees = x_pack(x_parts), pack(y_parts)
    both = table(rng, rows, columns, ill), table(rng, rows, columns, False)
    train, check = both[0], {**both[0]}
    order = rng.permutation(rows)
    if rng.random() < 0.8:  # else the same rows judge
        half = max(2, rows // 3)
        check = {name: column[order[:half]] for name, column in train.items()}
    is_exact = where != "g" and model != "network"
    return Program(told, outer, inner, *trees, (check, train), is_exact, True)


def _unbounded(rng: np.random.Generator) -> Program:
    term = UNBOUNDED[rng.integers(len(UNBOUNDED))]
    size = int(rng.integers(1, 4))
    return Program(
        "g has no minimum", lambda w: lambda x, y: ((y - 1) ** 2).sum() + (x**2).sum(),
        lambda w: term, rng.standard_normal(size), rng.standard_normal(size), (None, None),
        False, False,
    )  # fmt: skip


def _trees(kind: str) -> tuple[Callable, Callable]:
    """How named parts are packed into a tree of a kind, and taken out of it again."""
    if kind == "dict":
        return lambda parts: dict(parts), lambda tree, names: tree
    if kind == "array":
        return (
            lambda parts: next(iter(parts.values())),
            lambda tree, names: {names[0]: tree},
        )
    make = tuple if kind == "tuple" else list
    return (
        lambda parts: make(parts.values()),
        lambda tree, names: dict(zip(names, tree, strict=True)),
    )
