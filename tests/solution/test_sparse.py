"""Absolute penalties against soft thresholds, scikit-learn's lasso and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from sklearn.linear_model import Lasso

import untuned
from refusals import array, every_library, g, refused

# torch's own forward mode uses what it deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
rng = np.random.default_rng(0)
FEATURES = rng.standard_normal((40, 12)) @ (np.eye(12) + 0.6)  # correlated
TARGETS = FEATURES @ (rng.standard_normal(12) * (rng.random(12) < 0.4)) + rng.standard_normal(40)
GROUPS = np.repeat(np.arange(4), 3)
ZEROS = torch.zeros(12, dtype=torch.float64)


def squares(x, y, data):
    return ((data[0] @ y - data[1]) ** 2).sum() / (2 * len(data[1]))


def lasso(strength, features=None, **how):
    features = torch.tensor(FEATURES) if features is None else features
    data = features, torch.tensor(TARGETS)
    return untuned.argmin(squares, torch.zeros(1).double(), ZEROS, data=data, l1=strength, **how)


def finite_difference(y, at, step):
    return (y(at + step) - y(at - step)) / (2 * step)


def test_soft_threshold_and_its_derivatives():
    target = torch.tensor([0.9, -0.4, 0.2, -3.0], dtype=torch.float64, requires_grad=True)
    strength = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    y = lambda x, s: untuned.argmin(lambda x, y: ((y - x) ** 2).sum() / 2, x, x.detach(), l1=s)
    expected = torch.nn.functional.softshrink(target.detach(), 0.3)
    torch.testing.assert_close(y(target, strength).detach(), expected, rtol=1e-12, atol=0)
    assert y(target, strength)[2] == 0
    in_target, in_strength = torch.autograd.functional.jacobian(y, (target, strength))
    torch.testing.assert_close(in_target, torch.diag((expected != 0).double()))
    torch.testing.assert_close(in_strength, -torch.sign(expected))


def test_group_threshold():
    target = torch.tensor([3.0, 4.0, 0.3, 0.4], dtype=torch.float64, requires_grad=True)
    y = lambda x, s: untuned.argmin(
        lambda x, y: ((y - x) ** 2).sum() / 2, x, torch.zeros(4).double(), l1=s,
        groups=np.array([0, 0, 1, 1]),
    )  # fmt: skip
    s = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(y(target, s).detach(), torch.tensor([2.4, 3.2, 0, 0]).double())
    assert torch.autograd.gradcheck(y, (target, s), check_forward_ad=False)
    assert torch.autograd.gradgradcheck(y, (target, s))


@pytest.mark.parametrize("strength", [1e-3, 0.05, 0.5, 2.0])
def test_lasso_of_scikit_learn(strength):
    judge = Lasso(strength, fit_intercept=False, tol=1e-14, max_iter=100_000)
    expected = judge.fit(FEATURES, TARGETS).coef_
    at = torch.tensor(strength, dtype=torch.float64)
    y = lasso(at)
    np.testing.assert_allclose(y, expected, atol=1e-9)
    np.testing.assert_array_equal(y.numpy() == 0, expected == 0)
    slope = torch.func.jacfwd(lasso)(at)
    torch.testing.assert_close(
        slope, finite_difference(lasso, at, 1e-4 * strength), rtol=1e-6, atol=1e-8
    )
    assert not slope[y == 0].any()


@pytest.mark.parametrize("strength", [0.02, 0.3])
def test_groups_keep_the_conditions_of_optimality(strength):
    at = torch.full((4,), strength, dtype=torch.float64)
    y = lambda at: lasso(at, groups=GROUPS)
    found = y(at)
    slopes = torch.tensor(FEATURES.T @ (FEATURES @ found.numpy() - TARGETS) / 40)
    for k in range(4):
        own, slope = found[k == GROUPS], slopes[k == GROUPS]
        if own.any():
            torch.testing.assert_close(slope, -strength * own / own.norm(), rtol=0, atol=1e-10)
        else:
            assert slope.norm() <= strength
    jacobian = torch.func.jacrev(y)(at)
    for k in range(4):
        d = 1e-6 * torch.eye(4).double()[k]
        finite = (y(at + d) - y(at - d)) / 2e-6
        torch.testing.assert_close(jacobian[:, k], finite, rtol=1e-6, atol=1e-8)


def test_sparse_logistic_regressions_in_one_call_on_both_libraries():
    signs, strengths = np.sign(TARGETS), np.geomspace(1e-3, 0.2, 30)

    def solve(library, exp, strength):
        logistic = lambda x, y, data: exp(-data[1] * (data[0] @ y))
        zeros = torch.zeros(12).double() if library == "torch" else jnp.zeros(12)
        x = zeros[:1]
        return untuned.argmin(logistic, x, zeros, data=(FEATURES, signs), l1=strength)

    with_torch = lambda s: solve("torch", lambda z: torch.nn.functional.softplus(z).mean(), s)
    ys = torch.func.vmap(with_torch)(torch.tensor(strengths))
    slopes = torch.func.vmap(torch.func.jacrev(with_torch))(torch.tensor(strengths))
    with jax.enable_x64(True):
        with_jax = lambda s: solve("jax", lambda z: jax.nn.softplus(z).mean(), s)
        both = jax.jit(jax.vmap(lambda s: (with_jax(s), jax.jacrev(with_jax)(s))))
        ys_jax, slopes_jax = both(strengths)
        alone, forward = with_jax(strengths[3]), jax.jacfwd(with_jax)(strengths[3])
    np.testing.assert_allclose(ys_jax, ys, atol=1e-9)
    np.testing.assert_allclose(slopes_jax, slopes, atol=1e-6, rtol=1e-6)
    np.testing.assert_allclose(alone, ys[3], atol=1e-9)
    np.testing.assert_allclose(forward, slopes[3], atol=1e-6, rtol=1e-6)
    # The conditions of optimality at each.
    margins = signs * (ys.numpy() @ FEATURES.T)
    grads = -(signs / (1 + np.exp(margins))) @ FEATURES / 40
    for y, grad, s in zip(ys.numpy(), grads, strengths, strict=True):
        np.testing.assert_allclose(grad[y != 0], -s * np.sign(y[y != 0]), atol=1e-10)
        assert np.all(abs(grad[y == 0]) <= s + 1e-12)


@pytest.mark.parametrize("condition", [1e4, 1e8])
def test_badly_conditioned(condition):
    basis = np.linalg.qr(rng.standard_normal((12, 12)))[0]
    root = torch.tensor(basis * np.geomspace(1, condition**-0.5, 12) @ basis.T)
    target = torch.tensor(rng.standard_normal(12))
    s = torch.tensor(0.05).double()
    g = lambda x, y: ((root @ y - target) ** 2).sum() / 2
    y = lambda s: untuned.argmin(g, s, ZEROS, l1=s)
    found, grad = y(s), root.mT @ (root @ y(s) - target)
    on = found != 0
    assert 0 < on.sum() < 12
    torch.testing.assert_close(grad[on], -s * torch.sign(found[on]), rtol=0, atol=1e-12)
    hessian = (root.mT @ root)[on][:, on]
    expected = -torch.linalg.solve(hessian, torch.sign(found[on]))
    torch.testing.assert_close(torch.func.jacrev(y)(s)[on], expected, rtol=1e-6, atol=0)


def test_flat_on_the_support_is_no_answer():
    doubled = torch.tensor(np.hstack([FEATURES[:, :6], FEATURES[:, :6]]))
    y0 = torch.ones(12).double()
    flat = lambda x, y: ((doubled @ y - torch.tensor(TARGETS)) ** 2).sum()
    with pytest.raises(RuntimeError, match=r"not strongly convex|no minimum"):
        untuned.argmin(flat, torch.zeros(1).double(), y0, l1=1e-3)


@every_library
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"l1": -1.0}, "expected strengths from 0 up"),
        ({"l1": np.ones(3, np.float32)}, "l1 has leaves of shapes [(3,)]"),
        ({"l1": 1.0, "groups": np.array([0, 2])}, "none left out"),
        ({"l1": 1.0, "groups": np.array([0.0, 1.0])}, "expected whole numbers"),
        ({"l1": 1.0, "groups": np.array([0, 1, 1])}, "groups has leaves of shapes [(3,)]"),
        ({"groups": np.array([0, 1])}, "groups were given without l1"),
        ({"l1": 1.0, "constraint": "nonnegative"}, "were both given"),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_refused(library, changes, said):
    start = {name: array(library, [0.25, 0.75]) for name in ("x", "y0")}
    with refused(said):
        untuned.argmin(g, **start, **changes)
