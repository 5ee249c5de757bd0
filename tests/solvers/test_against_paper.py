"""Both algorithms against NumPy twins written from the paper, and against closed forms."""

import numpy as np
import pytest

import untuned
from libraries import as_numpy, given
from reference.dtfbo import dtfbo
from reference.problems import cleaning, quadratic, regularization
from reference.stfbo import stfbo
from untuned.data.streams import Stream
from untuned.solvers import DTFBO, STFBO

PROBLEMS = {
    # At condition 20, ten cold-started steps do not contract: a change of 1e-15 grows to 1e-4 in
    # the twin itself within 50 iterations, and no two programs would agree.
    "quadratic": lambda: quadratic(0, 3, 4, 5.0),
    "regularization": lambda: regularization(1, 40, 30, 6),
    "cleaning": lambda: cleaning(2, 30, 24, 5, 3, 0.4),
}
TUNABLE = {"eta_x": 0.7, "eta_y": 1.3, "eta_v": 0.4, "alpha0": 2.0, "beta0": 0.5, "gamma0": 3.0}

# (solver, twin, the twin's options); T is 60 throughout, but for hundreds of sub-steps in all.
SMALL = {"c_y": 1e-4, "c_v": 1e-3}
CASES = {
    "S-TFBO": (STFBO(), stfbo, {}),
    "S-TFBO tunable": (STFBO(**TUNABLE), stfbo, TUNABLE),
    "D-TFBO": (DTFBO(), dtfbo, {}),
    "D-TFBO tight": (DTFBO(**SMALL), dtfbo, SMALL),
    "D-TFBO tunable": (DTFBO(**TUNABLE, **SMALL), dtfbo, TUNABLE | SMALL),
    "D-TFBO anytime": (DTFBO(horizon="anytime", **SMALL), dtfbo, {"anytime": True, **SMALL}),
    "D-TFBO 10/10": (
        DTFBO(inner_steps=10, linear_steps=10),
        dtfbo,
        {"inner_steps": 10, "linear_steps": 10},
    ),
    "D-TFBO 5/3": (
        DTFBO(alpha0=5.0, beta0=5.0, gamma0=5.0, inner_steps=5, linear_steps=3),
        dtfbo,
        {"alpha0": 5.0, "beta0": 5.0, "gamma0": 5.0, "inner_steps": 5, "linear_steps": 3},
    ),
    "D-TFBO mixed": (DTFBO(inner_steps=4, **SMALL), dtfbo, {"inner_steps": 4, **SMALL}),
    "D-TFBO capped": (DTFBO(cap=3, **SMALL), dtfbo, {"cap": 3, **SMALL}),
}
STEPS = 60
long = pytest.mark.long


def batches_of(problem, solver, sizes, seed):
    """The rows of step t, by our own stream; `test_batches` judges the stream itself."""
    inner, outer = (
        Stream(problem.n_inner, sizes[0], seed, 0),
        Stream(problem.n_outer, sizes[1], seed, 1),
    )
    draws = solver.inner_draws
    return lambda t: (inner.batches(t * draws, draws), outer.batches(t, 1)[0])


def assert_same_run(result, twin):
    last, history = twin[-1], result.history
    for name in ("x", "y", "v"):
        ours = as_numpy(getattr(result.state, name))
        np.testing.assert_allclose(ours, last[name], rtol=0, atol=1e-9, err_msg=name)
    np.testing.assert_allclose(float(result.state.alpha), last["alpha"], rtol=1e-9)
    columns = ("outer", "inner_grad_norm", "residual_norm", "hypergrad_norm")
    for name in (*columns, "step_x", "step_y", "step_v"):
        expected = [record[name] for record in twin]
        np.testing.assert_allclose(history[name], expected, rtol=1e-7, atol=1e-9, err_msg=name)
    if "P" in last:
        assert history["inner_steps"].tolist() == [record["P"] for record in twin]
        assert history["linear_steps"].tolist() == [record["Q"] for record in twin]


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "name",
    ["quadratic", *(pytest.param(name, marks=long) for name in ("regularization", "cleaning"))],
)
def test_every_step_is_the_papers(case, name, library):
    problem = PROBLEMS[name]()
    solver, twin, options = CASES[case]
    expected = twin(problem, problem.x0, problem.y0, np.zeros_like(problem.y0), STEPS, **options)
    task = given(problem, library)
    result = untuned.minimize(
        *task.positional, **task.data, method=solver, max_steps=STEPS, eval_every=1
    )
    assert result.steps == STEPS
    assert_same_run(result, expected)


@pytest.mark.long
@pytest.mark.parametrize("case", ["S-TFBO", "D-TFBO tight", "D-TFBO 10/10", "D-TFBO 5/3"])
@pytest.mark.parametrize("name", ["regularization", pytest.param("cleaning", marks=long)])
def test_every_minibatch_step_is_the_papers(case, name, library):
    problem = PROBLEMS[name]()
    solver, twin, options = CASES[case]
    sizes = (7, 5)
    expected = twin(
        problem,
        problem.x0,
        problem.y0,
        np.zeros_like(problem.y0),
        STEPS,
        batches=batches_of(problem, solver, sizes, seed=3),
        **options,
    )
    task = given(problem, library)
    result = untuned.minimize(
        *task.positional,
        **task.data,
        method=solver,
        max_steps=STEPS,
        eval_every=1,
        batch_size=sizes,
        seed=3,
    )
    assert_same_run(result, expected)


def test_the_sub_loops_do_real_work():
    """The cases above would prove little if the while-loops hardly ran."""
    problem = PROBLEMS["quadratic"]()
    solver, _, _ = CASES["D-TFBO tight"]
    result = untuned.minimize(*given(problem, "jax").positional, method=solver, max_steps=STEPS)
    assert result.counts["inner_grad"] > 4 * STEPS
    assert result.counts["hvp"] > 4 * STEPS


@pytest.mark.long
@pytest.mark.parametrize(
    ("solver", "steps"),
    [(STFBO(), 20_000), (DTFBO(c_y=1e-15, c_v=1e-15, cap=2000), 300)],
    ids=["s-tfbo", "d-tfbo"],
)
def test_converges_to_the_closed_form(solver, steps):
    problem = quadratic(4, 3, 4, 5.0)
    result = untuned.minimize(*given(problem, "jax").positional, method=solver, max_steps=steps)
    x = problem.x_star()
    np.testing.assert_allclose(result.x, x, atol=1e-6)
    np.testing.assert_allclose(result.y, problem.y_star(x), atol=1e-6)
    np.testing.assert_allclose(result.v, problem.v_star(x), atol=1e-6)
    assert result.history["hypergrad_norm"][-1] < 1e-6


@pytest.mark.long
def test_converges_to_the_closed_form_on_torch(method):
    problem = quadratic(4, 3, 4, 5.0)
    options = {"c_y": 1e-12, "c_v": 1e-12} if method == "d-tfbo" else {}
    solver = untuned.solvers.get(method)(**options)
    result = untuned.minimize(*given(problem, "torch").positional, method=solver, max_steps=2000)
    np.testing.assert_allclose(as_numpy(result.x), problem.x_star(), atol=1e-3)


def test_hypergradient_is_the_closed_form(library):
    """D-TFBO's first hypergradient, its sub-loops solved exactly, is that of the closed form."""
    problem = quadratic(4, 3, 4, 5.0)
    solver = DTFBO(c_y=1e-20, c_v=1e-20)
    result = untuned.minimize(*given(problem, library).positional, method=solver, max_steps=1)
    expected = problem.hypergradient(problem.x0)
    norm = np.linalg.norm(expected)
    moved = problem.x0 - expected / np.hypot(1.0, norm)
    np.testing.assert_allclose(as_numpy(result.state.x), moved, atol=1e-9)
    np.testing.assert_allclose(result.history["hypergrad_norm"][0], norm, rtol=1e-9)
