"""`auto` where g cannot be differentiated twice: gradients alone, and the run says so."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import untuned
from libraries import as_numpy, convert
from reference import network as twin
from untuned.problem.first_order import gradients_alone

ROWS, SIZE, STEPS = 200, 20, 180


class Square(torch.autograd.Function):
    """z^2 / 2, whose backward pass cannot be differentiated."""

    @staticmethod
    def forward(ctx, z):
        ctx.save_for_backward(z)
        return z**2 / 2

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0]


def ridge(square):
    """A penalty for each of two groups of features."""
    random = np.random.default_rng(0)
    D = random.standard_normal((2 * ROWS, 6))
    t = D[:, :3] @ np.ones(3) + 3 * random.standard_normal(2 * ROWS)
    D, t = torch.tensor(D), torch.tensor(t)
    loss = lambda y, batch: square(batch[0] @ torch.cat([y["a"], y["b"]]) - batch[1]).mean()
    f = lambda x, y, batch: loss(y, batch)
    g = lambda x, y, batch: (
        loss(y, batch) + x[0].exp() * square(y["a"]).sum() + x[1].exp() * square(y["b"]).sum()
    )
    start = {name: torch.zeros(3, dtype=torch.float64) for name in "ab"}
    data = {"outer_data": (D[:ROWS], t[:ROWS]), "inner_data": (D[ROWS:], t[ROWS:])}
    return (f, g, torch.zeros(2, dtype=torch.float64), start), data


@pytest.mark.parametrize("batch_size", [SIZE, None])
def test_it_goes_where_second_derivatives_go(batch_size):
    twice, data = ridge(lambda z: z**2 / 2)
    once, _ = ridge(Square.apply)
    options = {**data, "batch_size": batch_size, "max_steps": STEPS}
    alone = untuned.minimize(*once, **options)
    assert "was not differentiated twice" in alone.message
    assert alone.counts == {"outer_grad": STEPS, "inner_grad": 2 * STEPS, "hvp": 0, "cross": 0}
    asked = untuned.minimize(*twice, **options, method=untuned.solvers.Auto(order=1))
    np.testing.assert_array_equal(asked.x, alone.x)
    if batch_size:
        usual = untuned.minimize(*twice, **options)
        assert "differentiated twice" not in usual.message
        assert usual.counts["hvp"] == STEPS
        np.testing.assert_allclose(alone.x, usual.x, rtol=1e-6, atol=1e-8)
        assert np.abs(np.asarray(usual.x)).max() > 0.01  # x has moved at all


def test_products_are_those_of_second_derivatives(library):
    """Against the products themselves, of about a thousand in float64, at y and at y = 0."""
    problem = twin.made()
    xp_loss = lambda y, batch: (((batch[0] @ y[0].T) ** 2) @ y[1] - batch[1]) ** 2 / 2
    g = lambda x, y, batch: (xp_loss(y, batch) * x[batch[2]] ** 2).mean()
    rows = tuple(
        convert(library, part) for part in (*problem.inner, np.arange(len(problem.inner[1])))
    )
    x = convert(library, np.linspace(1, 2, len(problem.inner[1])))
    for size in (1.0, 0.0):
        y = [convert(library, size * part) for part in problem.y0]
        v = [convert(library, 1e3 * np.cos(np.arange(p.size)).reshape(p.shape)) for p in problem.y0]
        o = untuned.oracles(g, g, like=(x, y))
        with o.ops.precision((x, y)):
            found, right = gradients_alone(o).inner(x, y, v, rows), o.inner(x, y, v, rows)
            for a, b in zip(found, right, strict=True):
                a, b = as_numpy(o.ops.ravel(a)), as_numpy(o.ops.ravel(b))
                np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6 * np.abs(b).max() + 1e-6)


def test_a_network_without_second_derivatives_tells_wrong_rows():
    """60 of 200 labels are wrong; the loss is a function that differentiates once."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 260)
    D = torch.tensor(random.standard_normal((260, 6)) + 2.0 * labels[:, None]).float()
    given = labels.copy()
    given[:60] = 1 - given[:60]
    t = torch.tensor(2.0 * given - 1).float()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    weights, apply = untuned.from_module(model)
    losses = lambda y, batch: Square.apply(apply(y, batch[0])[:, 0] - batch[1])
    result = untuned.minimize(
        lambda x, y, batch: losses(y, batch).mean(),
        lambda x, y, batch: (torch.sigmoid(x[batch[2]]) * losses(y, batch)).mean(),
        torch.zeros(200), weights, outer_data=(D[200:], t[200:]),
        inner_data=(D[:200], t[:200], torch.arange(200)), batch_size=20, max_steps=150,
    )  # fmt: skip
    assert "was not differentiated twice" in result.message
    assert result.counts == {"outer_grad": 150, "inner_grad": 450, "hvp": 0, "cross": 0}
    assert roc_auc_score(np.arange(200) >= 60, result.x) > 0.97
