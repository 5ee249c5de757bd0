"""Functions that bring their derivatives run on NumPy, and as the same functions run on torch."""

import subprocess
import sys

import numpy as np
import pytest

import untuned
from libraries import as_numpy, given
from reference.problems import cleaning, quadratic, regularization
from untuned.ops import get
from untuned.ops import numpy as on_numpy
from untuned.solvers.numerics import preconditioner

PROBLEMS = {
    "quadratic": quadratic(0, 3, 4, 20.0),
    "regularization": regularization(1, 40, 30, 6),
    "cleaning": cleaning(2, 30, 24, 5, 3, 0.4),
}


class Outer:
    """f of a reference problem, with derivatives written by hand."""

    def __init__(self, problem):
        self.problem = problem

    def __call__(self, x, y):
        return self.problem.f(x, y)

    def value_and_grads(self, x, y):
        return self(x, y), self.problem.f_x(x, y), self.problem.f_y(x, y)


class Inner:
    """g of one."""

    def __init__(self, problem):
        self.problem = problem

    def __call__(self, x, y):
        return self.problem.g(x, y)

    def value_and_grads(self, x, y):
        step = 1e-6  # F2SA alone asks for grad_x g
        units = np.eye(x.size).reshape(-1, *x.shape)
        in_x = [(self(x + step * u, y) - self(x - step * u, y)) / (2 * step) for u in units]
        return self(x, y), np.reshape(in_x, x.shape), self.problem.g_y(x, y)

    def grad_y(self, x, y):
        return self.problem.g_y(x, y)

    def products(self, x, y):
        def pull(v, wrt):
            products = {"x": self.problem.g_xy, "y": self.problem.g_yy}
            if wrt == "xy":
                return tuple(products[k](x, y, v) for k in "xy")
            return products[wrt](x, y, v)

        return pull


@pytest.mark.long
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("method", untuned.solvers.names())
def test_same_run_as_on_torch(name, method, monkeypatch):
    # `auto` counts what a Hessian costs, which differs between libraries: here it is told the same.
    monkeypatch.setattr(get("torch"), "hessian_price", lambda fn, x, y: y.numel())
    monkeypatch.setattr(preconditioner, "_inversion", lambda *_: 0.0)
    problem = PROBLEMS[name]
    budget = {"method": method, "max_steps": 12, "seed": 3}
    ours = untuned.minimize(Outer(problem), Inner(problem), problem.x0, problem.y0, **budget)
    task = given(problem, "torch")
    torch = untuned.minimize(*task.positional, **task.data, **budget)
    assert isinstance(ours.x, np.ndarray)
    assert (ours.status, ours.steps) == (torch.status, torch.steps)
    rough = method in ("f2sa", "auto")  # differences; and sums whose order decides where to stop
    for a, b in ((ours.x, torch.x), (ours.y, torch.y)):
        np.testing.assert_allclose(a, as_numpy(b), rtol=1e-4 if rough else 1e-8, atol=1e-7)


@pytest.mark.process
def test_nothing_else_is_loaded():
    """A fit of a linear model needs neither JAX nor torch, whose imports alone take a second."""
    code = (
        "import sys; from sklearn.datasets import load_iris;"
        "from untuned.estimators import BilevelLogisticRegression as B;"
        "B(random_state=0).fit(*load_iris(return_X_y=True));"
        "assert not {'jax', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.long
def test_same_run_as_on_jax():
    problem = PROBLEMS["quadratic"]
    task = given(problem, "jax")
    result = untuned.minimize(*task.positional, method="d-tfbo", max_steps=3)
    ours = untuned.minimize(
        Outer(problem), Inner(problem), problem.x0, problem.y0, method="d-tfbo", max_steps=3
    )
    np.testing.assert_allclose(ours.x, result.x, rtol=1e-10)


@pytest.mark.parametrize("constraint", ["simplex", "nonnegative", (-0.1, 0.2)])
def test_constraints(constraint):
    problem = PROBLEMS["quadratic"]
    task = given(problem, "torch")
    budget = {"method": "d-tfbo", "max_steps": 20, "constraint": constraint}
    ours = untuned.minimize(Outer(problem), Inner(problem), problem.x0, problem.y0, **budget)
    torch = untuned.minimize(*task.positional, **budget)
    np.testing.assert_allclose(ours.x, as_numpy(torch.x), rtol=1e-9, atol=1e-12)


class Split:
    """A function of a vector y as one of its two parts."""

    def __init__(self, function):
        self.function = function

    def __call__(self, x, y):
        return self.function(x, _joined(y))

    def value_and_grads(self, x, y):
        value, in_x, in_y = self.function.value_and_grads(x, _joined(y))
        return value, in_x, _parts(in_y)

    def grad_y(self, x, y):
        return _parts(self.function.grad_y(x, _joined(y)))

    def products(self, x, y):
        def pull(v, wrt):
            in_x, in_y = self.function.products(x, _joined(y))(_joined(v), "xy")
            return {"x": in_x, "y": _parts(in_y), "xy": (in_x, _parts(in_y))}[wrt]

        return pull


def _joined(y):
    return np.r_[y["a"], y["b"]]


def _parts(y):
    return {"a": y[:1], "b": y[1:]}


def test_trees_and_checkpoints(tmp_path):
    """A run that goes on from a file ends where an uninterrupted one does."""
    problem = PROBLEMS["quadratic"]
    functions = Split(Outer(problem)), Split(Inner(problem))
    start = (*functions, problem.x0, _parts(problem.y0))
    path = tmp_path / "run.untuned"
    for method in ("s-tfbo", "auto"):
        whole = untuned.minimize(*start, method=method, max_steps=15)
        untuned.minimize(*start, method=method, max_steps=7, checkpoint=path)
        resumed = untuned.minimize(*start, method=method, max_steps=15, checkpoint=path)
        np.testing.assert_array_equal(resumed.x, whole.x)
        np.testing.assert_array_equal(resumed.y["b"], whole.y["b"])
        path.unlink()


@pytest.mark.parametrize("stack", [(), (3,)])
def test_what_lapack_refuses_is_nan(stack):
    matrix = np.broadcast_to([[np.nan, 0.0], [0.0, 1.0]], (*stack, 2, 2))
    values, vectors = on_numpy.eigh(matrix)
    assert values.shape == (*stack, 2)
    assert np.isnan(values).all()
    assert np.isnan(vectors).all()
