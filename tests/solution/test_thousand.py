"""Random problems of every kind: a right answer or the failure that was asked for, and in time."""

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

import untuned

KINDS = ("convex", "not convex", "flat", "one variable", "NaN inside", "empty", "penalized", "held")


def problem(kind, rng):
    """inner, x, y0, and more arguments."""
    size = 1 if kind == "one variable" else int(rng.integers(2, 9))
    root = rng.standard_normal((size, size)) * 10.0 ** rng.uniform(-1, 1)
    A = torch.tensor(root @ root.T + 10.0 ** rng.uniform(-6, 0) * np.eye(size))
    B, c = torch.tensor(rng.standard_normal((size, 2))), torch.tensor(rng.standard_normal(size))
    x, y0 = torch.tensor(rng.standard_normal(2)), torch.tensor(rng.standard_normal(size))
    smooth = lambda x, y: (y * (A @ y)).sum() / 2 - ((B @ x + c) * y).sum()
    if kind in ("convex", "one variable"):
        return (lambda x, y: smooth(x, y) + softplus(2 * y).sum()), x, y0, {}
    if kind == "not convex":
        return (lambda x, y: smooth(x, y) + 3 * torch.cos(2 * y).sum()), x, y0, {}
    if kind == "flat":
        off = torch.tensor(rng.standard_normal(size))
        return (lambda x, y: (off @ y - x.sum()) ** 2), x, y0, {}
    if kind == "NaN inside":
        return (lambda x, y: smooth(x, y) - torch.log(y - y0 + rng.choice([-1.0, 0.0]))
                .sum()), x, y0, {}  # fmt: skip
    if kind == "empty":
        return smooth, x, y0[:0], {}
    if kind == "penalized":
        return smooth, x, y0, {"l1": float(10.0 ** rng.uniform(-3, 1))}
    return smooth, x, abs(y0), {"constraint": "nonnegative"}


def is_minimum(inner, x, y, kind, more):
    slope = torch.func.grad(inner, argnums=1)(x, y)
    hessian = torch.autograd.functional.hessian(lambda y: inner(x, y), y)
    tight = 1e-6 * (1 + (hessian.abs() @ y.abs()).max())
    if kind == "penalized":
        s, on = more["l1"], y != 0
        return bool(
            ((slope + s * torch.sign(y))[on].abs() <= tight).all()
            and (slope[~on].abs() <= s + tight).all()
        )
    if kind == "held":
        return bool((slope[y > 0].abs() <= tight).all() and (slope[y == 0] >= -tight).all())
    return bool((slope.abs() <= tight).all() and torch.linalg.eigvalsh(hessian).min() > 0)


def check(seed):
    """The kind of problem, and whether it was solved."""
    rng = np.random.default_rng(seed)
    kind = KINDS[seed % len(KINDS)]
    inner, x, y0, more = problem(kind, rng)
    if kind == "empty":
        with pytest.raises(ValueError, match="y0 holds no numbers"):
            untuned.argmin(inner, x, y0)
        return kind, False
    x.requires_grad_()
    y = untuned.argmin(inner, x, y0, on_failure="nan", **more)
    direction = torch.tensor(rng.standard_normal(len(y0)))
    (slope,) = torch.autograd.grad(y @ direction, x)
    y, at = y.detach(), x.detach()
    if y.isnan().any():
        assert y.isnan().all(), seed
        assert slope.isnan().all(), seed
        return kind, False
    assert is_minimum(inner, at, y, kind, more), (seed, kind)
    # From the solution, so that a problem with several minima stays with this one.
    step = 1e-5 * torch.tensor(rng.standard_normal(2))
    ahead, back = (
        untuned.argmin(inner, at + d, y, on_failure="nan", **more) for d in (step, -step)
    )
    if torch.equal((ahead == 0) | (back == 0), y == 0):  # no entry became free or was held
        finite = (ahead - back) @ direction / 2
        error = abs(finite - slope @ step)
        size = (direction.norm() * (ahead - back).norm() / 2).item()
        assert error <= 1e-4 * size + 1e-9 * y.norm() * direction.norm(), (seed, kind)
    return kind, True


def check_all(seeds):
    solved = [kind for kind, was in map(check, seeds) if was]
    each = len(seeds) // len(KINDS)
    for kind in ("convex", "one variable", "penalized", "held"):
        assert solved.count(kind) == each, kind
    assert solved.count("not convex") >= 0.9 * each
    assert not solved.count("flat")


@pytest.mark.long
def test_random_problems():
    check_all(range(80))


@pytest.mark.slow
def test_a_thousand_random_problems():
    check_all(range(80, 1080))
