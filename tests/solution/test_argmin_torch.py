"""y*(x) on torch against closed forms: autograd, torch.func, stacks of problems."""

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

import untuned

rng = np.random.default_rng(0)
FEATURES, TARGETS = (torch.tensor(rng.standard_normal(s)) for s in ((12, 3), (12,)))
X = torch.tensor([0.1, 0.5, -0.3], dtype=torch.float64)
ZEROS = torch.zeros(3, dtype=torch.float64)


def ridge(x, y, data):
    features, targets = data
    return ((features @ y - targets) ** 2).sum() + (torch.exp(x) * y**2).sum()


def solution(x, features=FEATURES):
    return untuned.argmin(ridge, x, ZEROS, data=(features, TARGETS))


def closed(x, features=FEATURES):
    return torch.linalg.solve(features.mT @ features + torch.diag(x.exp()), features.mT @ TARGETS)


def squares(y):
    return lambda *given: (y(*given) ** 2).sum()


@pytest.mark.long
def test_solution_and_its_derivatives():
    torch.testing.assert_close(solution(X), closed(X), rtol=1e-12, atol=0)
    given = (X.clone().requires_grad_(), FEATURES.clone().requires_grad_())
    assert gradcheck(solution, given)
    assert gradgradcheck(solution, given)


def test_torch_func_twice():
    second = lambda y: torch.func.grad(lambda x: torch.func.grad(squares(y))(x).sum())(X)
    torch.testing.assert_close(second(solution), second(closed), rtol=1e-9, atol=0)


def test_maps_over_derivatives_and_derivatives_over_maps():
    many = torch.stack([X, 2 * X, -X])
    expected = torch.func.vmap(torch.func.grad(squares(closed)))(many)
    found = torch.func.vmap(torch.func.grad(squares(solution)))(many)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)
    mapped = lambda many: (torch.func.vmap(solution)(many) ** 2).sum()
    torch.testing.assert_close(torch.func.grad(mapped)(many), expected, rtol=1e-9, atol=0)
    tracked = many.clone().requires_grad_()
    torch.func.vmap(solution)(tracked).square().sum().backward()
    torch.testing.assert_close(tracked.grad, expected, rtol=1e-9, atol=0)


def test_maps_of_maps_with_what_they_share():
    strengths = torch.stack([X, 2 * X])
    tables = torch.stack([FEATURES, FEATURES + 1, FEATURES * 2])

    def grid(y):
        over_tables = torch.func.vmap(torch.func.grad(squares(y)), in_dims=(None, 0))
        return torch.func.vmap(over_tables, in_dims=(0, None))(strengths, tables)

    torch.testing.assert_close(grid(solution), grid(closed), rtol=1e-9, atol=1e-14)


def test_each_problem_of_a_stack_ends_by_itself():
    """A problem's neighbours, however hard, change nothing in it."""
    g = lambda x, y: torch.logaddexp(y, -y).sum() * torch.exp(x) + ((y - x) ** 2).sum() / 100
    xs = torch.tensor([0.0, 7.0, -3.0], dtype=torch.float64)
    y = lambda x: untuned.argmin(g, x, ZEROS[:1] + 4)
    together = torch.func.vmap(y)(xs)
    for x, found in zip(xs, together, strict=True):
        torch.testing.assert_close(y(x), found, rtol=1e-13, atol=1e-15)


def test_trees_integers_and_float32():
    labels = np.array([0, 1, 0, 1, 1, 0, 1, 0, 0, 1, 1, 0])

    def g(x, y, data):
        scores = FEATURES.to(y["w"]) @ y["w"] + y["b"]
        loss = torch.logaddexp(0 * scores, scores) - data["labels"] * scores
        return loss.mean() + x * (y["w"] ** 2).sum() + 0.2 * y["b"] ** 2

    def loss(x):
        start = {"w": torch.zeros(3).to(x), "b": torch.zeros(()).to(x)}
        y = untuned.argmin(g, x, start, data={"labels": labels})
        return (y["w"] ** 2).sum() + y["b"]

    x = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
    assert gradcheck(loss, (x,))
    (exact,) = torch.autograd.grad(loss(x), x)
    narrow = x.detach().float().requires_grad_()
    (found,) = torch.autograd.grad(loss(narrow), narrow)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, rtol=1e-3, atol=0)


def test_many_variables_without_a_matrix():
    scale = torch.linspace(1.0, 50.0, 300, dtype=torch.float64)
    target = torch.tensor(np.random.default_rng(1).standard_normal(300))
    g = lambda x, y: (scale * (y - target) ** 2).sum() + torch.exp(x) * (y**2).sum()
    found = lambda x: untuned.argmin(g, x, torch.zeros_like(target))
    by_hand = lambda x: scale * target / (scale + torch.exp(x))
    x = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    for y, judge in ((found, by_hand),):
        (slope,) = torch.autograd.grad(squares(y)(x), x, create_graph=True)
        (bend,) = torch.autograd.grad(slope, x)
        (slope_2,) = torch.autograd.grad(squares(judge)(x), x, create_graph=True)
        (bend_2,) = torch.autograd.grad(slope_2, x)
        torch.testing.assert_close(slope, slope_2, rtol=1e-8, atol=0)
        torch.testing.assert_close(bend, bend_2, rtol=1e-7, atol=0)
    two = torch.tensor([0.5, 1.0], dtype=torch.float64)
    mapped = lambda y: torch.func.vmap(torch.func.grad(squares(y)))(two)
    torch.testing.assert_close(mapped(found), mapped(by_hand), rtol=1e-8, atol=0)


def test_a_tensor_that_inner_only_closes_over_is_no_silent_zero():
    strength = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    g = lambda x, y: ((y - x) ** 2).sum() + strength * (y**2).sum()
    with pytest.raises(ValueError, match="put it into x or data, or detach it"):
        untuned.argmin(g, X, ZEROS)
    with torch.no_grad():
        torch.testing.assert_close(untuned.argmin(g, X, ZEROS), X / 2)


def _matrix(x, y):
    return torch.diag(1 + y**2) + x * (torch.diag(torch.arange(2.0, 5.0)).double() + 0.1)


# Functions of torch whose second derivatives under vmap are wrong where gradients are off.
LINEAR_ALGEBRA = {
    "solve": lambda x, y: y @ torch.linalg.solve(_matrix(x, y), y),
    "logdet": lambda x, y: -torch.logdet(_matrix(x, y)),
    "slogdet": lambda x, y: torch.linalg.slogdet(_matrix(x, y))[1],
    "inv": lambda x, y: y @ torch.linalg.inv(_matrix(x, y)) @ y,
    "cholesky": lambda x, y: (torch.linalg.cholesky(_matrix(x, y)) @ y).sum(),
    "eigvalsh": lambda x, y: (torch.linalg.eigvalsh(_matrix(x, y)) ** 2).sum() / 10,
}


@pytest.mark.parametrize("name", LINEAR_ALGEBRA)
def test_a_stack_of_problems_with_linear_algebra_inside(name):
    g = lambda x, y: LINEAR_ALGEBRA[name](x, y) + 3 * ((y - 1) ** 2).sum()
    y = lambda x: untuned.argmin(g, x, torch.full((3,), 0.3, dtype=torch.float64))
    xs = torch.linspace(0.5, 1.5, 3, dtype=torch.float64)
    twice = torch.func.jacrev(torch.func.jacrev(y))
    for function in (y, torch.func.jacrev(y), twice):
        each = torch.stack([function(x) for x in xs])
        torch.testing.assert_close(torch.func.vmap(function)(xs), each, rtol=1e-9, atol=1e-9)
    with torch.no_grad():
        torch.testing.assert_close(torch.func.vmap(y)(xs), torch.stack([y(x) for x in xs]))


def test_groups_are_a_tensor_within_derivatives():
    target = torch.tensor([3.0, 4.0, 0.3, -0.4], dtype=torch.float64)
    distance = lambda x, y: ((y - x) ** 2).sum() / 2
    y = lambda x: untuned.argmin(
        distance, x, torch.zeros(4, dtype=torch.float64), l1=1.0, groups=torch.tensor([0, 0, 1, 1])
    )
    shrunk = lambda x: torch.cat([x[:2] * (1 - 1 / x[:2].norm()), 0 * x[2:]])
    for transform in (torch.func.jacrev, torch.func.vmap, lambda y: y):
        at = target[None] if transform is torch.func.vmap else target
        torch.testing.assert_close(transform(y)(at), transform(shrunk)(at))
