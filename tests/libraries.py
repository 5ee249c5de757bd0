"""The reference problems of `reference.problems`, written once more in JAX and in torch."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import torch

from reference.coupled import Coupled
from reference.problems import HyperCleaning, Quadratic, RegularizationSelection
from untuned.ops.cache import reusable


class Given(NamedTuple):
    """The arguments of `untuned.minimize` that say what the problem is."""

    outer: Any
    inner: Any
    x0: Any
    y0: Any
    outer_data: Any = None
    inner_data: Any = None

    @property
    def positional(self):
        return self[:4]

    @property
    def data(self):
        return {"outer_data": self.outer_data, "inner_data": self.inner_data}


def as_numpy(array):
    return array.detach().numpy() if isinstance(array, torch.Tensor) else np.asarray(array)


def assert_same_result(ours, expected):
    """Bit for bit, history included; only the clock differs."""
    for name in ("status", "steps", "counts"):
        assert getattr(ours, name) == getattr(expected, name)
    for a, b in zip((*ours.state, ours.x), (*expected.state, expected.x), strict=True):
        assert np.array_equal(as_numpy(a), as_numpy(b))
    for name in set(ours.history) - {"seconds"}:
        assert np.array_equal(ours.history[name], expected.history[name]), name


def convert(library, array, dtype=np.float64):
    """A NumPy array as the library wants it; NumPy arrays run on JAX."""
    array = np.asarray(array)
    array = array.astype(dtype) if array.dtype.kind == "f" else array
    return torch.tensor(array) if library == "torch" else array


def given(problem, library, dtype=np.float64):
    """A reference problem in the functions and arrays of a library."""
    builders = {
        Quadratic: _quadratic,
        RegularizationSelection: _regularization,
        HyperCleaning: _cleaning,
        Coupled: _coupled,
    }
    task = builders[type(problem)](problem, library, dtype)
    # Runs of the same task are compiled once; `test_run.py` and others run functions of their own.
    return task._replace(outer=reusable(task.outer), inner=reusable(task.inner))


def _quadratic(p, library, dtype):
    A, B, a, b, t = (convert(library, z, dtype) for z in (p.A, p.B, p.a, p.b, p.target))

    def outer(x, y):
        return 0.5 * ((y - t) ** 2).sum() + 0.5 * p.rho * (x**2).sum() + (b * x).sum()

    def inner(x, y):
        return 0.5 * (y * (A @ y)).sum() + (y * (B @ x)).sum() + (a * y).sum()

    return Given(outer, inner, convert(library, p.x0, dtype), convert(library, p.y0, dtype))


def _regularization(p, library, dtype):
    softplus = torch.nn.functional.softplus if library == "torch" else jax.nn.softplus
    exp = torch.exp if library == "torch" else jnp.exp

    def outer(x, y, batch):
        return softplus(-batch["t"] * (batch["D"] @ y)).mean()

    def inner(x, y, batch):
        return outer(x, y, batch) + 0.5 * (exp(x) * y**2).sum()

    def rows(features, labels):
        return {"D": convert(library, features, dtype), "t": convert(library, labels, dtype)}

    return Given(
        outer,
        inner,
        convert(library, p.x0, dtype),
        convert(library, p.y0, dtype),
        rows(p.outer_features, p.outer_labels),
        rows(p.inner_features, p.inner_labels),
    )


def _cleaning(p, library, dtype):
    if library == "torch":
        sigmoid = torch.sigmoid

        def losses(y, D, t):
            return torch.nn.functional.cross_entropy(D @ y, t, reduction="none")
    else:
        sigmoid = jax.nn.sigmoid

        def losses(y, D, t):
            scores = jax.nn.log_softmax(D @ y)
            return -jnp.take_along_axis(scores, t[:, None], axis=1)[:, 0]

    def outer(x, y, batch):
        return losses(y, *batch).mean()

    def inner(x, y, batch):
        D, t, index = batch
        return (sigmoid(x[index]) * losses(y, D, t)).mean() + p.C * (y**2).sum()

    def rows(features, labels):
        return convert(library, features, dtype), convert(library, labels)

    index = convert(library, np.arange(p.n_inner))
    return Given(
        outer,
        inner,
        convert(library, p.x0, dtype),
        convert(library, p.y0, dtype),
        rows(p.outer_features, p.outer_labels),
        (*rows(p.inner_features, p.inner_labels), index),
    )


def _coupled(p, library, dtype):
    def outer(x, y, batch):
        e, t, d, s = batch
        return (
            0.5 * ((e @ y - t) ** 2).mean()
            + 0.5 * d.mean() * (x**2).sum()
            + s.mean() * (x * y).sum()
        )

    def inner(x, y, batch):
        a, b, c = batch
        return 0.5 * ((a @ y - b) ** 2).mean() + c.mean() * (x * y).sum() + 0.5 * (y**2).sum()

    outer_data, inner_data = (
        tuple(convert(library, z, dtype) for z in side)
        for side in ((p.e, p.t, p.d, p.s), (p.a, p.b, p.c))
    )
    starts = (convert(library, z, dtype) for z in (p.x0, p.y0))
    return Given(outer, inner, *starts, outer_data, inner_data)
