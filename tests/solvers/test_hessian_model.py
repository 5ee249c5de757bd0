"""The model of g's Hessian, and where `auto` ends: against products, NumPy and other precisions."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import untuned
from libraries import as_numpy, given
from reference.problems import regularization
from untuned.ops import get
from untuned.ops import torch as ops
from untuned.problem.derivatives import Oracles
from untuned.solvers.auto import implicit, inner
from untuned.solvers.numerics import newton_cg, preconditioner
from untuned.solvers.numerics.preconditioner import ALL_ROWS, EXACT_SO_FAR, INEXACT, Renewal, start

TASK = given(regularization(1, 60, 40, 6), "torch")


def softplus_problem(dtype, columns=12, rows=400):
    """One strength per feature, as a user writes it on torch."""
    random = np.random.default_rng(3)
    X = random.standard_normal((rows, columns)) * np.linspace(0.2, 3, columns)
    t = np.sign(X @ (random.standard_normal(columns) * (np.arange(columns) % 3 == 0)) + 0.5)
    X, t = torch.tensor(X, dtype=dtype), torch.tensor(t, dtype=dtype)

    def outer(x, y, batch):
        return torch.nn.functional.softplus(-batch[1] * (batch[0] @ y)).mean()

    def inner(x, y, batch):
        return outer(x, y, batch) + 0.5 * (x.exp() * y * y).sum()

    half = rows // 2
    return {
        "outer": outer, "inner": inner, "x0": torch.full((columns,), -2.0, dtype=dtype),
        "y0": torch.zeros(columns, dtype=dtype), "outer_data": (X[:half], t[:half]),
        "inner_data": (X[half:], t[half:]),
    }  # fmt: skip


@pytest.fixture
def dear_hessian(monkeypatch):
    """A Hessian costs as many products as it has columns."""
    monkeypatch.setattr(ops, "hessian_price", lambda fn, x, y: ops.size(y))


def test_columns_at_once_are_columns_one_by_one(monkeypatch):
    task = softplus_problem(torch.float64)
    o = Oracles(ops, task["outer"], task["inner"])
    at = task["x0"], task["y0"] + 0.3, task["inner_data"]
    at_once = o.hessian(*at)

    def refuse(*_):
        raise RuntimeError("no rule for several points")

    monkeypatch.setattr(ops, "_hessian_at_once", refuse)
    np.testing.assert_allclose(at_once, o.hessian(*at), rtol=1e-12, atol=1e-14)


def test_a_function_that_looks_at_numbers_has_its_columns_one_by_one():
    def inner(x, y):
        return (y**4).sum() if y.sum().item() > 0 else (y**2).sum()

    y = torch.arange(1.0, 4.0)
    found = ops.hessian(inner, y, y)
    np.testing.assert_allclose(found, np.diag(12 * y.numpy() ** 2), rtol=1e-6)


def test_with_the_model_and_with_products_alone_the_end_is_the_same(monkeypatch):
    task = softplus_problem(torch.float64)
    modelled = untuned.minimize(**task, tol=1e-4)
    monkeypatch.setattr(preconditioner, "MOST_VARIABLES", 0)
    by_products = untuned.minimize(**task, tol=1e-4)
    assert modelled.status == by_products.status == "converged"
    ends = [result.history["outer"][-1] for result in (modelled, by_products)]
    assert ends[0] == pytest.approx(ends[1], rel=1e-4)
    assert modelled.counts["hvp"] < by_products.counts["hvp"]


@pytest.mark.parametrize("library", ["jax", "torch", "numpy"])
def test_the_inverse_is_that_of_numpy_and_nothing_where_there_is_none(library):
    found, array = get(library), torch.tensor if library == "torch" else np.array
    root = np.random.default_rng(0).standard_normal((2, 5, 5)).astype(np.float32)
    matrices = root @ root.swapaxes(1, 2) + np.eye(5, dtype=np.float32)
    inverse = np.asarray(found.inverse(array(matrices)))
    np.testing.assert_allclose(inverse, np.linalg.inv(matrices), rtol=1e-4, atol=1e-5)
    matrices[1] -= 100 * np.eye(5, dtype=np.float32)
    assert not np.isfinite(np.asarray(found.inverse(array(matrices)))).all()


class Matrix:
    """Oracles of 1/2 <y, H y>, as far as a model of H asks."""

    def __init__(self, hessian):
        self.ops, self.hessian = ops, lambda *_: torch.tensor(hessian)


def test_a_model_is_the_inverse_or_where_that_is_not_positive_its_absolute_value():
    rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((4, 4)))[0]
    y = torch.zeros(4, dtype=torch.float64)
    for values in ([1, 2, 3, 4], [-1, 2, 3, 4]):
        matrix = rotation * values @ rotation.T
        scale = abs(np.diag(matrix)) ** -0.5
        inside = np.linalg.eigh(scale[:, None] * matrix * scale)
        absolute = inside.eigenvectors / abs(inside.eigenvalues) @ inside.eigenvectors.T
        found = preconditioner.make(Matrix(matrix), y, y, None, None)
        np.testing.assert_allclose(found, scale[:, None] * absolute * scale, rtol=1e-10)
        if min(values) > 0:
            np.testing.assert_allclose(found, np.linalg.inv(matrix), rtol=1e-10)


@pytest.mark.usefixtures("dear_hessian")
def test_an_inverse_that_costs_more_than_products_waits_for_them():
    rows = torch.zeros(40, 65)
    o, y = Oracles(ops, None, None), torch.zeros(640)
    renewal = Renewal(o, y, y, rows, None, 100)
    assert renewal.price > 640 + 640**3 / (20 * rows.numel())  # as bytes of float32 count half
    assert not renewal.renewed(start(o, y), y, y)[1]


def test_y_and_v_are_those_of_numpy():
    task = softplus_problem(torch.float64)
    o, rows = Oracles(ops, task["outer"], task["inner"]), task["inner_data"]
    x, y = task["x0"], task["y0"]
    renewal = Renewal(o, x, y, rows, None, 100)
    solved = inner.solve_y(o, x, y, rows, 1e-6, renewal, start(o, y))
    assert solved.model.source == ALL_ROWS
    by_products = newton_cg.solve_inner(o, x, y, rows, 1e-6, 100, lambda r: r)
    assert solved.work.products < by_products.linear_steps
    assert ops.norm(o.inner_grad(x, solved.y, rows)) < 1e-7
    b = torch.linspace(-1, 1, len(y), dtype=torch.float64)
    v = inner.solve_v(o, x, solved.y, b, rows, 1e-8, renewal, 0 * y, solved.model, 100)
    expected = np.linalg.solve(o.hessian(x, solved.y, rows).numpy(), b.numpy())
    np.testing.assert_allclose(v.v, expected, rtol=1e-6)


def test_a_system_without_a_residual_is_not_solved(monkeypatch):
    task = softplus_problem(torch.float64)
    o, rows, y = Oracles(ops, task["outer"], task["inner"]), task["inner_data"], task["y0"]
    renewal = Renewal(o, task["x0"], y, rows, None, 100)
    monkeypatch.setattr(renewal, "renewed", lambda *_: pytest.fail("a model was asked for"))
    at = task["x0"], y, 0 * y, rows, 1e-8, renewal, 0 * y, start(o, y), 100
    nothing = inner.solve_v(o, *at)
    assert not nothing.v.any()
    assert (nothing.work.linear_steps, nothing.work.products) == (0, 1)


def test_a_model_that_has_become_wrong_is_made_anew():
    task = softplus_problem(torch.float64)
    o, rows, y = Oracles(ops, task["outer"], task["inner"]), task["inner_data"], task["y0"]
    renewal = Renewal(o, task["x0"], y, rows, None, 100)
    here = inner.solve_y(o, task["x0"], y, rows, 1e-3, renewal, start(o, y))
    # Penalties that are e^6 times stronger or weaker: nothing of the model holds.
    x = task["x0"] + 6.0 * torch.tensor([1.0, -1.0] * 6, dtype=torch.float64)
    there = inner.solve_y(o, x, here.y, rows, 1e-3, renewal, here.model)
    assert there.work.products >= round(renewal.price)
    exact = newton_cg.solve_inner(o, x, y, rows, 1e-12, 100, lambda r: r).y
    hessian = o.hessian(x, exact, rows)
    left, first = (float(d @ hessian @ d) for d in (there.y - exact, here.y - exact))
    assert left <= 2e-6 * first  # in the energy of the Hessian there


@pytest.mark.parametrize(("found", "goes"), [(0.9, False), (3.9, False), (4.1, True), (0.2, True)])
def test_a_model_that_misjudges_an_energy_goes(found, goes):
    task = softplus_problem(torch.float64)
    o, y = Oracles(ops, task["outer"], task["inner"]), task["y0"]
    renewal = Renewal(o, task["x0"], y, task["inner_data"], None, 100)
    model, _, _ = renewal.renewed(start(o, y), task["x0"], y)
    model, off = renewal.checked(model, 1.0, found, True)
    assert off is goes
    assert bool(renewal.renewed(model, task["x0"], y)[1]) is goes


def squares_problem():
    """Its Hessian is that of the rows, and of penalties that a step of x changes e^2 times."""
    random = np.random.default_rng(4)
    X, t = (torch.from_numpy(random.standard_normal(shape)) for shape in ((400, 12), (400,)))

    def inner(x, y, rows):
        return ((rows[0] @ y - rows[1]) ** 2).mean() + (x.exp() * y * y).sum()

    o = Oracles(ops, None, inner)
    x = torch.linspace(-2, 2, 12, dtype=torch.float64)
    return o, x, torch.zeros_like(x), (X, t), (X[:40], t[:40])


def kept_model(o, x, y, rows, sample):
    """A model fresh from all rows, its price, and who keeps it."""
    renewal = Renewal(o, x, y, rows, sample, 100)
    model = start(o, y)._replace(owed=renewal.price)
    model, _, price = renewal.renewed(model, x, y)
    return renewal, model, price


@pytest.mark.usefixtures("dear_hessian")
def test_between_two_hessians_on_all_rows_a_sample_says_how_penalties_changed():
    o, x, y, rows, sample = squares_problem()
    renewal, model, price = kept_model(o, x, y, rows, sample)
    assert (model.source, price) == (ALL_ROWS, 12)
    moved = x + torch.tensor([2.0, -2.0] * 6, dtype=torch.float64)
    assert not renewal.renewed(model, moved, y)[1]
    model, renewed, price = renewal.renewed(
        renewal.charged(model, 1 + renewal.sample_price, 0), moved, y
    )
    assert renewed
    assert price == round(renewal.sample_price) < 12
    expected = np.linalg.inv(o.hessian(moved, y, rows).numpy())
    np.testing.assert_allclose(model.matrix, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("library", ["jax", "torch"])
def test_least_squares_make_their_hessian_on_all_rows_once(library):
    """The next one is the sample's correction, as one product shows; not so in other losses."""
    random = np.random.default_rng(4)
    rows = random.standard_normal((400, 12)), np.sign(random.standard_normal(400))
    x, found = np.linspace(-2, 2, 12), get(library)
    exp, softplus = (torch.exp, torch.nn.functional.softplus)
    if library == "jax":
        import jax

        exp, softplus = jax.numpy.exp, jax.nn.softplus
    convert = torch.from_numpy if library == "torch" else found.asarray
    asked: list[int] = []
    with found.precision(x):
        x, rows = convert(x), tuple(map(convert, rows))
        sample, y = tuple(part[:40] for part in rows), 0 * x
        for loss in (lambda z: (z - 1) ** 2, softplus):
            inner = lambda x, y, batch, loss=loss: (
                loss(batch[1] * (batch[0] @ y)).mean() + (exp(x) * y * y).sum()
            )
            o = Oracles(found, None, inner)
            o.hessian = lambda x, y, rows, beside=None, o=o: (
                asked.append(len(rows[1])), Oracles.hessian(o, x, y, rows, beside)
            )[1]  # fmt: skip
            renewal = Renewal(o, x, y, rows, sample, 100)
            assert renewal.sample_price < renewal.price
            model = start(o, y)
            for at in range(3):
                here = x - at, y + 0.3 * at
                model, _, price = renewal.renewed(model._replace(owed=model.owed + 99), *here)
                expected = np.linalg.inv(as_numpy(Oracles.hessian(o, *here, rows)))
                np.testing.assert_allclose(as_numpy(model.matrix), expected, rtol=1e-9, atol=1e-12)
                squares = loss is not softplus
                assert model.corrections == (EXACT_SO_FAR if squares or at == 0 else INEXACT)
                by_sample = squares and at > 0
                assert price == round(1 + renewal.sample_price if by_sample else renewal.price)
            if library == "torch":  # JAX traces what it does not take as well
                assert asked.count(400) == (1 if squares else 3)
            asked.clear()


@pytest.mark.usefixtures("dear_hessian")
def test_a_model_that_misjudges_is_corrected_first_and_made_anew_if_that_does_not_help():
    problem = squares_problem()
    _, x, y, *_ = problem
    renewal, model, _ = kept_model(*problem)
    model = model._replace(corrections=INEXACT)  # else a product would show that nothing is wrong
    for fresh, price in ((False, round(renewal.sample_price)), (True, 12)):
        judged, off = renewal.checked(model, 1.0, 10.0, fresh)
        assert off
        assert renewal.renewed(judged, x, y)[2] == price


@pytest.mark.usefixtures("dear_hessian")
def test_a_sample_whose_correction_misjudges_is_not_asked_again():
    problem = squares_problem()
    _, x, y, *_ = problem
    renewal, model, _ = kept_model(*problem)
    spend = lambda model: renewal.charged(model, 1 + renewal.sample_price, 0)
    corrected, _, _ = renewal.renewed(spend(model), x, y)
    judged, _ = renewal.checked(corrected, 1.0, 10.0, True)
    model, _, price = renewal.renewed(judged, x, y)
    assert price == 12  # on all rows
    assert renewal.renewed(spend(corrected), x, y)[1]
    assert not renewal.renewed(spend(model), x, y)[1]


@pytest.mark.usefixtures("dear_hessian")
def test_a_model_is_not_made_before_products_have_cost_as_much():
    task = softplus_problem(torch.float64)
    o, y = Oracles(ops, task["outer"], task["inner"]), task["y0"]
    renewal = Renewal(o, task["x0"], y, task["inner_data"], None, 100)
    model = start(o, y)
    for spent in (5, 5, 6):
        model, renewed, _ = renewal.renewed(model, task["x0"], y)
        assert not renewed
        model = renewal.charged(model, spent, 0)
    model, renewed, price = renewal.renewed(model, task["x0"], y)
    assert renewed
    assert price == 12


def test_the_end_is_the_same_in_both_precisions():
    narrow, wide = (
        untuned.minimize(**softplus_problem(dtype)) for dtype in (torch.float32, torch.float64)
    )
    assert narrow.status == wide.status == "converged"
    gained = wide.history["outer"][0] - wide.history["outer"][-1]
    assert abs(narrow.history["outer"][-1] - wide.history["outer"][-1]) < 1e-3 * gained
    assert wide.steps <= 1.5 * narrow.steps + 3


def test_what_is_left_at_the_end_is_not_worth_the_while():
    task = softplus_problem(torch.float64)
    result = untuned.minimize(**task)
    further = untuned.minimize(**task, tol=1e-7)
    assert result.steps < further.steps
    assert further.history["hypergrad_norm"][-1] <= 1e-7 * further.history["hypergrad_norm"][0]
    first, end, least = (
        result.history["outer"][0], result.history["outer"][-1], further.history["outer"][-1],
    )  # fmt: skip
    assert end - least <= 1e-3 * (first - least)


def test_a_slow_run_ends_unless_a_tolerance_is_given(monkeypatch):
    monkeypatch.setattr(implicit, "SLOW", 0.2)
    monkeypatch.setattr(implicit, "LONG", 4)
    task, values = softplus_problem(torch.float64), []
    keep = lambda snapshot: values.append(snapshot.state.value)
    result = untuned.minimize(**task, callback=keep)
    window = values[-1 - max(4, 7 * len(values) // 16) :]
    assert window[0] - window[-1] <= 0.2 * (values[0] - values[-1])
    monkeypatch.setattr(implicit, "LONG", 10**9)
    assert result.status == "converged"
    assert result.steps < untuned.minimize(**task).steps
    monkeypatch.setattr(implicit, "LONG", 4)
    assert result.steps < untuned.minimize(**task, tol=1e-7).steps


def test_the_end_is_that_of_the_reference_in_any_precision():
    result = untuned.minimize(*TASK.positional, **TASK.data)
    assert result.status == "converged"
    assert np.isfinite(as_numpy(result.x)).all()


@pytest.mark.process
def test_small_problems_on_torch_import_no_sympy():
    script = (
        "import sys, torch, untuned\n"
        "one = torch.ones(3)\n"
        "f = lambda x, y: ((y - 1) ** 2).sum()\n"
        "g = lambda x, y: ((y - x) ** 4).sum() + ((y - x) ** 2).sum()\n"
        "untuned.minimize(f, g, 0 * one, 0 * one, max_steps=3)\n"
        "print('sympy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


def test_a_model_whose_step_was_refused_is_not_made_again_at_the_same_y(monkeypatch):
    monkeypatch.setattr(ops, "hessian_price", lambda fn, x, y: -1.0)  # one is always due
    g = lambda x, y, rows: (1 + (rows * y) ** 2).sqrt().mean()  # whose full steps lead too far
    o, y = Oracles(ops, None, g), torch.tensor([3.0], dtype=torch.float64)
    rows = torch.ones(50, 1, dtype=torch.float64)
    renewal = Renewal(o, y, y, rows, None, 100)
    solved = inner.solve_y(o, y, y, rows, 1e-6, renewal, start(o, y))
    assert abs(solved.y.item()) < 1e-4


def test_strengths_hundreds_of_powers_apart_leave_the_model_an_inverse():
    diagonal = np.array([1e-3, 1.0, 1e120, 1e250])
    hessian = np.diag(diagonal)
    hessian[0, 1] = hessian[1, 0] = 1e-2
    y = torch.zeros(4, dtype=torch.float64)
    found = preconditioner.make(Matrix(hessian), y, y, None, None).numpy()
    np.testing.assert_allclose(found[:2, :2], np.linalg.inv(hessian[:2, :2]), rtol=1e-10)
    np.testing.assert_allclose(np.diag(found)[2:], 1 / diagonal[2:], rtol=1e-10)
