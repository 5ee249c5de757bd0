"""`auto` says "converged" only where it is true: y solves g, and x is stationary in its set."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy import optimize

import untuned

X0, Y0 = [1.0, 2.0], [0.5, -0.3]


def to_one(x, y):
    return ((y - 1) ** 2).sum()


def sum_and_square(x, y):
    return y.sum() + (x**2).sum()


def concave(x, y):
    return (-(y**2) + x * y).sum()


def linear(x, y):
    return (x * y).sum()


def cubic(x, y):
    return (y**3 + x * y).sum()


def saddle(x, y):
    return y[0] ** 2 - y[1] ** 2 + (x * y).sum()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("tol", [None, 1e-3])
@pytest.mark.parametrize(
    ("f", "g"),
    [(to_one, concave), (to_one, linear), (to_one, cubic), (to_one, saddle),
     (sum_and_square, concave)],
)  # fmt: skip
def test_g_without_a_minimum_is_no_convergence(f, g, tol, dtype):
    x0, y0 = (torch.tensor(start, dtype=getattr(torch, dtype)) for start in (X0, Y0))
    result = untuned.minimize(f, g, x0, y0, tol=tol, max_steps=100)
    assert result.status in ("stalled", "diverged", "cap_hit")
    if result.status != "diverged":
        assert "the gradient of g in y has norm" in result.message


@pytest.mark.parametrize("g", [concave, linear])
@pytest.mark.parametrize("method", ["aid", "amigo", "itd", "stocbio"])
def test_fixed_steps_on_y_are_no_convergence(method, g):
    x0, y0 = (torch.tensor(start, dtype=torch.float64) for start in (X0, Y0))
    result = untuned.minimize(to_one, g, x0, y0, method=method, tol=1e-3, max_steps=50)
    assert result.status != "converged"


def test_g_without_a_minimum_on_jax():
    result = untuned.minimize(to_one, concave, jnp.array(X0), jnp.array(Y0))
    assert result.status in ("stalled", "diverged")


class Penalised:
    """Logistic regression on half of the rows, a penalty x >= 0 per feature, the loss elsewhere."""

    def __init__(self, seed, decades):
        random = np.random.default_rng(seed)
        rows = random.standard_normal((400, 20))
        truth = np.r_[2, -1.5, 1, -1, 0.5, np.zeros(15)]
        signs = np.sign(rows @ truth + 0.8 * random.standard_normal(400))
        self.size = 10.0 ** random.uniform(-decades, decades, 20)
        self.rows, self.signs = rows, signs
        self.half = slice(0, 200), slice(200, 400)

    def functions(self):
        rows = torch.tensor(self.rows * self.size)
        signs = torch.tensor(self.signs)

        def loss(half, y):
            return torch.nn.functional.softplus(-signs[half] * (rows[half] @ y)).mean()

        train, other = self.half
        return (
            lambda x, y: loss(other, y),
            lambda x, y: loss(train, y) + 0.5 * (x * y**2).sum(),
        )

    def value(self, x):
        """Phi and its gradient, by Newton's method on features of size one."""
        x, y, (train, other) = x / self.size**2, np.zeros(20), self.half

        def parts(half):
            margin = self.signs[half] * (self.rows[half] @ y)
            wrong = 1 / (1 + np.exp(margin))
            down = -self.rows[half].T @ (self.signs[half] * wrong) / 200
            bend = (self.rows[half].T * (wrong * (1 - wrong))) @ self.rows[half] / 200
            return np.logaddexp(0, -margin).mean(), down, bend + np.diag(x) + 1e-14 * np.eye(20)

        for _ in range(60):
            before, slope, bend = parts(train)
            before, slope, start = before + x @ y**2 / 2, slope + x * y, y
            move, size = np.linalg.solve(bend, slope), 1.0
            y = start - move
            while parts(train)[0] + x @ y**2 / 2 > before and size > 1e-9:
                size /= 2
                y = start - size * move
            if abs(slope).max() < 1e-12:
                break
        value, slope, _ = parts(other)
        v = np.linalg.solve(parts(train)[2], slope)
        return value, -y * v / self.size**2

    def from_here(self, x):
        """What SciPy finds from x."""
        found = optimize.minimize(
            self.value, x, jac=True, method="L-BFGS-B", bounds=[(0, None)] * 20,
            options={"maxiter": 100, "ftol": 1e-9},
        )  # fmt: skip
        return found.fun


@pytest.mark.parametrize("bound", ["nonnegative", lambda x: x.clamp(min=0.0)])
@pytest.mark.parametrize(("seed", "start"), [(0, 1.0), (0, 0.01), (1, 1.0), (1, 0.01)])
def test_converged_under_bounds_is_true(seed, start, bound):
    problem = Penalised(seed, decades=0)
    x0 = torch.full((20,), start, dtype=torch.float64)
    result = untuned.minimize(
        *problem.functions(), x0, torch.zeros(20, dtype=torch.float64), constraint=bound
    )
    x = result.x.numpy()
    assert result.status == "converged"
    assert x.min() >= 0
    # The best that SciPy finds from the same start, and from where the run has ended.
    assert problem.value(x)[0] <= 1.01 * problem.from_here(x0.numpy())
    assert problem.value(x)[0] <= 1.002 * problem.from_here(x)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_badly_scaled_features_under_a_bound(seed):
    problem = Penalised(seed, decades=3)
    x0 = torch.full((20,), 0.01, dtype=torch.float64)
    result = untuned.minimize(
        *problem.functions(), x0, torch.zeros(20, dtype=torch.float64), constraint="nonnegative"
    )
    x = result.x.numpy()
    assert result.status == "converged"
    assert problem.value(x)[0] <= 1.01 * problem.from_here(x0.numpy())


def test_other_sets_keep_their_direction():
    """On a simplex an entry's place depends on others: the projected gradient, and its minimum."""
    goal = np.array([0.7, 0.5, -0.3, 0.05])
    result = untuned.minimize(
        lambda x, y: ((y - jnp.asarray(goal)) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum(),
        np.full(4, 0.25), np.zeros(4), constraint="simplex",
    )  # fmt: skip
    assert result.status == "converged"
    np.testing.assert_allclose(result.x, [0.6, 0.4, 0, 0], atol=1e-6)


@pytest.mark.parametrize("scale", [2, 6])
def test_converged_is_as_near_as_the_float_type_can_tell(scale):
    """Logistic loss, columns of other sizes, x known to be one: runs ended at 3e-7 and 3e-6."""
    rng = np.random.default_rng(5 + scale // 2)
    X = rng.standard_normal((200, 5))
    X[:, 0] = 1
    X *= 10.0 ** np.linspace(-scale, scale, 5)
    t = X @ (rng.standard_normal(5) / np.abs(X).max(0)) + 0.1 * rng.standard_normal(200)
    signs = np.where(t > np.median(t), 1.0, -1.0)
    A, b, tilt = (
        torch.from_numpy(each) for each in (X, signs, X.std(0) / 10 * (np.arange(5) == 2))
    )

    def g(x, y):
        loss = torch.nn.functional.softplus(-b * (A @ y)).mean() + 5e-4 * (y @ y)
        return loss - (x[0] - 1) * (tilt @ y)

    start = torch.full((1,), 0.5).double(), torch.zeros(5).double()
    result = untuned.minimize(lambda x, y: g(torch.ones(1), y), g, *start)
    assert result.status == "converged"
    assert "float64 cannot hold a smaller gain of f" in result.message
    assert float(abs(result.x - 1)) < 1e-8


def test_y_is_exact_where_a_run_says_that_it_converged():
    """Least squares on JAX in float32 with a column like a year: no digit of y was right."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((200, 5))
    X[:, 0], X[:, 1] = 1, 2e3 + 6 * X[:, 1]
    t = X @ (rng.standard_normal(5) / np.abs(X).max(0)) + 0.1 * rng.standard_normal(200)
    rows = X.astype(np.float32), t.astype(np.float32)
    g = lambda x, y, r: ((r[0] @ y - x[0] * r[1]) ** 2).mean() / 2
    result = untuned.minimize(
        lambda x, y, r: g(0 * x + 1, y, r), g, np.full(1, 0.5, "f"), np.zeros(5, "f"),
        outer_data=rows, inner_data=rows,
    )  # fmt: skip
    assert result.status == "converged"
    np.testing.assert_allclose(result.y, np.linalg.lstsq(X, t)[0], rtol=0.1)
