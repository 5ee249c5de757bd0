"""Products with rows that stay, on torch: against torch alone, for what users write."""

import numpy as np
import pytest
import torch

import untuned
from untuned.ops import torch as plain
from untuned.ops.torch_rows import operations
from untuned.ops.torch_rows.operations import OnRows
from untuned.ops.torch_rows.products import Rows
from untuned.problem.derivatives import on_rows
from untuned.run import backend

COUNT, COLUMNS = 60, 7
functional = torch.nn.functional


def table(density=1.0, seed=0):
    random = np.random.default_rng(seed)
    X = random.standard_normal((COUNT, COLUMNS)) * (random.random((COUNT, COLUMNS)) < density)
    t = np.sign(random.standard_normal(COUNT))
    return torch.from_numpy(X), torch.from_numpy(t)


def penalty(x, y):
    return 0.5 * (x.exp() * y * y).sum()


def squares(x, y, rows):
    return ((rows[0] @ y - rows[1]) ** 2).mean() / 2 + penalty(x, y)


def logistic(x, y, rows):
    return functional.softplus(-rows[1] * torch.mv(rows[0], y)).mean() + penalty(x, y)


def with_intercept(x, y, rows):
    z = rows[0] @ y["w"] + y["b"]
    return functional.softplus(-rows[1] * z).mean() + penalty(x, y["w"])


def intercept_in_y(x, y, rows):
    return functional.softplus(-rows[1] * (rows[0] @ y[:-1] + y[-1])).mean() + penalty(x, y[:-1])


def classes(x, y, rows):
    z = rows[0].matmul(y)
    loss = functional.cross_entropy(z, (rows[1] > 0).long() + (rows[0][:, 0] > 0))
    return loss + 0.5 * (x.exp() * (y * y).sum(1)).sum()


def layer(x, y, rows):
    z = functional.linear(rows[0], y["weight"], y["bias"])
    loss = functional.cross_entropy(z, (rows[1] > 0).long())
    return loss + 0.5 * (x.exp() * (y["weight"] ** 2).sum(0)).sum()


def scales(x, y, rows):
    return functional.softplus(-rows[1] * (rows[0] @ (x.exp() * y))).mean() + (y**4).sum()


def coupled(x, y, rows):
    """A penalty that is no diagonal."""
    return logistic(x, y, rows) + 0.1 * y.sum() ** 2


def tied(x, y, rows):
    """No mean over rows: each row's loss depends on all of them."""
    z = rows[0] @ y
    return (z - z.mean()).pow(4).mean().sqrt() + penalty(x, y)


def two_products(x, y, rows):
    return (rows[0] @ y).tanh().mean() + ((rows[0] @ (2 * y)) ** 2).mean() + penalty(x, y)


def written_twice(x, y, rows):
    """Poisson's loss."""
    return ((rows[0] @ y).exp() - rows[1] * (rows[0] @ y)).mean() + penalty(x, y)


def outputs(x, y, rows):
    """Least squares of several columns."""
    return ((rows[0] @ y - rows[1][:, None]) ** 2).mean() + penalty(x[:, None], y)


def many_classes(x, y, rows):
    labels = (9.9 * rows[0][:, 0].sigmoid()).long()
    return functional.cross_entropy(rows[0] @ y, labels) + penalty(x[:, None], y)


def in_place(x, y, rows):
    z = rows[0] @ y
    z -= rows[1]
    return z.pow(2).mean() + penalty(x, y)


def network(x, y, rows):
    hidden = torch.tanh(rows[0] @ y["first"])
    return functional.softplus(-rows[1] * (hidden @ y["second"])).mean() + penalty(
        x, y["first"].T[0]
    )


def vector(seed, *shape):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


FLAT = vector(2, COLUMNS)
POINTS = {
    squares: FLAT, logistic: FLAT, intercept_in_y: vector(2, COLUMNS + 1), scales: FLAT,
    coupled: FLAT, tied: FLAT, two_products: FLAT, in_place: FLAT, classes: vector(2, COLUMNS, 3),
    written_twice: 0.3 * FLAT, outputs: vector(2, COLUMNS, 2), many_classes: vector(2, COLUMNS, 10),
    with_intercept: {"w": FLAT, "b": vector(3, 1)},
    layer: {"weight": vector(2, 2, COLUMNS), "bias": vector(3, 2)},
    network: {"first": vector(2, COLUMNS, 3), "second": vector(3, 3)},
}  # fmt: skip
NO_SPLIT = (tied, two_products)


@pytest.mark.parametrize("density", [1.0, 0.2])
@pytest.mark.parametrize("function", POINTS, ids=lambda function: function.__name__)
def test_all_derivatives_are_torchs_own(function, density, monkeypatch):
    monkeypatch.setattr("untuned.ops.traced.sparse_rows.LARGE", 1)
    ops, fn, x = OnRows(), on_rows(function, table(density)), 0.3 * vector(1, COLUMNS)
    for y in (POINTS[function], plain.tree_map(lambda leaf: 0.5 * leaf, POINTS[function])):
        v = plain.tree_map(lambda leaf: 1.5 - leaf, y)
        for _ in range(2):  # the second time by what is known from the first
            pull, truly = ops.products(fn, x, y), plain.products(fn, x, y)
            pairs = [
                (ops.value(fn, x, y), plain.value(fn, x, y)),
                (ops.value_and_grads(fn, x, y), plain.value_and_grads(fn, x, y)),
                (ops.value_and_grad_y(fn, x, y), plain.value_and_grad_y(fn, x, y)),
                (ops.grad_y(fn, x, y), plain.grad_y(fn, x, y)),
                (ops.linearize(fn, x, y)[0], plain.linearize(fn, x, y)[0]),
                *[(pull(v, wrt), truly(v, wrt)) for wrt in ("x", "y", "xy")],
                (ops.hessian(fn, x, y), plain.hessian(fn, x, y)),
            ]
            for found, expected in pairs:
                both = plain.flatten(found)[0], plain.flatten(expected)[0]
                for a, b in zip(*both, strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)
    assert ops._form(fn, x, y).splits == (function not in NO_SPLIT)
    assert ops._form(fn, x, y).stays == (function in (squares, in_place, outputs))


def test_rows_are_not_read_again_at_a_known_y_nor_for_products_of_least_squares(monkeypatch):
    ops, rows, x = OnRows(), table(), vector(1, COLUMNS)
    fn, reads = on_rows(squares, rows), []
    multiply = Rows._multiply
    monkeypatch.setattr(
        Rows, "_multiply", lambda self, *given: reads.append(given) or multiply(self, *given)
    )
    ops.hessian(fn, x, FLAT)
    ops.value_and_grad_y(fn, x, FLAT)
    del reads[:]
    ops.value_and_grad_y(fn, x + 1, FLAT)
    _, pull = ops.linearize(fn, x + 1, FLAT)
    pull(FLAT, "y")
    pull(FLAT, "x")
    ops.hessian(fn, x + 2, FLAT)
    assert not reads
    ops.value_and_grad_y(fn, x, FLAT + 1)
    assert len(reads) == 2


def test_weights_that_change_after_all_are_seen():
    """Huber's loss is quadratic where it was tried, and not elsewhere."""

    def huber(x, y, rows):
        return functional.huber_loss(rows[0] @ y, rows[1], delta=30.0) + penalty(x, y)

    ops, fn, x = OnRows(), on_rows(huber, table()), vector(1, COLUMNS)
    assert ops._form(fn, x, FLAT).stays
    for y in (FLAT, 20 * FLAT, FLAT):
        np.testing.assert_allclose(ops.hessian(fn, x, y), plain.hessian(fn, x, y), rtol=1e-10)
        found, truly = ops.products(fn, x, y)(FLAT, "y"), plain.products(fn, x, y)(FLAT, "y")
        np.testing.assert_allclose(found, truly, rtol=1e-10)
    assert not ops._form(fn, x, FLAT).stays


def test_rows_that_are_changed_and_what_else_changes_are_seen():
    ops, rows, x = OnRows(), table(), vector(1, COLUMNS)
    strength = [1.0]
    fn = on_rows(lambda x, y, rows: strength[0] * logistic(x, y, rows), rows)
    before = ops.value(fn, x, FLAT)
    strength[0] = 3.0
    assert ops.value(fn, x, FLAT) == pytest.approx(3 * before)
    rows[0].mul_(2)
    assert ops.value(fn, x, FLAT) == pytest.approx(plain.value(fn, x, FLAT), rel=1e-12)


def with_vmap(x, y, rows):
    z = torch.vmap(lambda one: rows[0] @ one)(torch.stack([y, 2 * y]))
    return (z**2).mean() + penalty(x, y)


class OwnProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx, X, y):
        ctx.save_for_backward(X)
        return X @ y

    @staticmethod
    def backward(ctx, grad):
        (X,) = ctx.saved_tensors
        return None, X.T @ grad


def with_own_function(x, y, rows):
    return (OwnProduct.apply(rows[0], y) ** 2).mean() + penalty(x, y)


def with_checkpoint(x, y, rows):
    from torch.utils.checkpoint import checkpoint

    z = checkpoint(lambda y: (rows[0] @ y) ** 2, y, use_reentrant=False)
    return z.mean() + penalty(x, y)


@pytest.mark.parametrize("function", [with_vmap, with_own_function, with_checkpoint])
def test_a_function_that_products_of_ours_do_not_suit_is_left_to_torch(function):
    ops, fn, x = OnRows(), on_rows(function, table()), vector(1, COLUMNS)
    found, truly = ops.value_and_grads(fn, x, FLAT), plain.value_and_grads(fn, x, FLAT)
    assert found[0] == truly[0]
    for a, b in zip(found[1:], truly[1:], strict=True):
        assert torch.equal(a, b)


def test_time_that_is_up_ends_a_hessian():
    from untuned.util import watch

    ops, fn, x = OnRows(), on_rows(logistic, table()), vector(1, COLUMNS)
    with watch.over(lambda: True, False):
        assert ops.hessian(fn, x, FLAT).shape == (COLUMNS, COLUMNS)


def test_a_run_ends_where_it_does_on_torch_alone(monkeypatch):
    rows, others = table(), table(seed=1)
    task = {
        "outer": lambda x, y, rows: functional.softplus(-rows[1] * (rows[0] @ y)).mean(),
        "inner": logistic, "x0": torch.full((COLUMNS,), -2.0, dtype=torch.float64),
        "y0": torch.zeros(COLUMNS, dtype=torch.float64), "outer_data": others, "inner_data": rows,
    }  # fmt: skip
    used = []
    split = operations.Split
    monkeypatch.setattr(operations, "Split", lambda *given: used.append(1) or split(*given))
    alone = untuned.minimize(**task, tol=1e-6)
    assert not used  # so few rows are left to torch
    monkeypatch.setattr(backend, "WORTH_KEEPING", 1)
    kept = untuned.minimize(**task, tol=1e-6)
    assert used
    assert kept.status == alone.status == "converged"
    assert kept.history["outer"][-1] == pytest.approx(alone.history["outer"][-1], rel=1e-6)


def test_a_resumed_run_is_the_run_that_was_not_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(backend, "WORTH_KEEPING", 1)
    task = {
        "outer": lambda x, y, rows: ((rows[0] @ y - rows[1]) ** 2).mean(), "inner": squares,
        "x0": torch.full((COLUMNS,), -2.0, dtype=torch.float64),
        "y0": torch.zeros(COLUMNS, dtype=torch.float64),
        "outer_data": table(seed=1), "inner_data": table(), "tol": 1e-9,
    }  # fmt: skip
    whole = untuned.minimize(**task, max_steps=9)
    untuned.minimize(**task, max_steps=4, checkpoint=tmp_path / "run")
    resumed = untuned.minimize(**task, max_steps=9, checkpoint=tmp_path / "run")
    assert whole.steps == resumed.steps
    assert torch.equal(whole.x, resumed.x)
    assert torch.equal(whole.y, resumed.y)
