"""Every form a derivative takes keeps the digits of the plain form, on columns that lose them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from untuned.ops.jax_on_host import OnHost
from untuned.ops.torch_rows.operations import OnRows as OnTorchRows
from untuned.problem.derivatives import on_rows

COUNT = 400


def columns(name):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((COUNT, 5))
    if name == "far from zero":
        X = np.stack([np.ones(COUNT), 2000 + 6 * X[:, 0], *X[:, 2:].T], 1)
    elif name == "of other sizes":
        X *= 10.0 ** np.linspace(-6, 6, 5)
    elif name == "nearly the same":
        X[:, 1] = X[:, 0] + 1e-3 * X[:, 1]
    else:
        X *= rng.random(X.shape) < 0.1
    return X, X @ (rng.standard_normal(5) / abs(X).max(0)) + 0.05 * rng.standard_normal(COUNT)


def squares(x, y, rows):
    return ((rows[0] @ y - rows[1]) ** 2).mean() / 2 + 0 * x.sum()


def logistic(x, y, rows):
    softplus = torch.nn.functional.softplus if torch.is_tensor(y) else jax.nn.softplus
    return softplus(-rows[1] * (rows[0] @ y)).mean() + 0 * x.sum()


def plain(fn, X, t, y, v):
    """The gradient, a product with the Hessian, and the Hessian, as anybody writes them."""
    z, w = X @ y, np.ones_like(t)
    slope = z - t
    if fn is logistic:
        p = 1 / (1 + np.exp(t * z))
        slope, w = -t * p, p * (1 - p)
    return X.T @ slope / COUNT, X.T @ (w * (X @ v)) / COUNT, X.T @ (w[:, None] * X) / COUNT


def ours(library, fn, X, t, y, v):
    if library == "torch":
        ops, (X, t, y, v) = OnTorchRows(), map(torch.from_numpy, (X, t, y, v))
        x, rows = torch.zeros(1, dtype=y.dtype), (X, t)
    else:
        ops, x = OnHost("least", in_numpy=library == "jax in NumPy"), np.zeros(1, y.dtype)
        rows = (jnp.asarray(X), jnp.asarray(t))
    g = on_rows(fn, rows)
    gradients = [ops.grad_y(g, x, y), ops.linearize(g, x, y)[0], ops.value_and_grad_y(g, x, y)[1]]
    found = [*gradients, ops.products(g, x, y)(v, "y"), ops.hessian(g, x, y)]
    return [np.asarray(part, float) for part in found]


@pytest.mark.parametrize("library", ["jax", "jax in NumPy", "torch"])
@pytest.mark.parametrize("name", ["far from zero", "of other sizes", "nearly the same", "zeros"])
@pytest.mark.parametrize("fn", [squares, logistic])
def test_derivatives_are_as_good_as_the_plain_form(library, name, fn, monkeypatch):
    monkeypatch.setattr("untuned.ops.traced.sparse_rows.LARGE", 1)
    X, t = columns(name)
    best = np.linalg.lstsq(X, t)[0]
    t = np.sign(t - np.median(t)) + (t == np.median(t)) if fn is logistic else t
    for dtype in (np.float32, np.float64):
        given = [a.astype(dtype) for a in (X, t, best, best[::-1])]
        exact = plain(fn, *(a.astype(np.longdouble) for a in given))
        direct = plain(fn, *given)
        with jax.enable_x64(dtype is np.float64):
            found = ours(library, fn, *given)
        for part, k in zip(found, (0, 0, 0, 1, 2), strict=True):
            lengths = np.linalg.norm(X, axis=0)  # an error counts by the size of its columns
            scale = lengths if k < 2 else lengths[:, None] * lengths
            theirs = (abs(direct[k] - exact[k]) / scale).max()
            # The order of a sum of so many numbers is anybody's.
            spacing = COUNT**0.5 * np.finfo(dtype).eps * (abs(exact[k]) / scale).max()
            assert (abs(part - exact[k]) / scale).max() <= 8 * max(theirs, spacing)
