"""The sets x may live in, against SciPy and by their definitions."""

import numpy as np
import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize as scipy_minimize

import untuned
from libraries import as_numpy, given
from reference.problems import quadratic
from untuned.ops import get

FINITE = st.floats(-100, 100, allow_subnormal=False)


@pytest.mark.parametrize("name", ["jax", "torch"])
@for_all(point=arrays(np.float64, st.integers(1, 12), elements=FINITE))
@settings(deadline=None, max_examples=60)
@pytest.mark.long
def test_simplex_projection_is_the_nearest_point(name, point):
    ops = get(name)
    with ops.precision(np.zeros(1)):
        projected = as_numpy(ops.simplex(ops.asarray(point)))
    assert np.all(projected >= 0)
    assert projected.sum() == pytest.approx(1)
    # The nearest point z of a convex set is the one with <p - z, w - z> <= 0 for all its w.
    vertices = np.eye(len(point))
    assert np.max((vertices - projected) @ (point - projected)) <= 1e-8


@pytest.mark.parametrize(
    ("constraint", "bounds", "equal"),
    [
        ("nonnegative", [(0, None)] * 3, ()),
        ((-0.3, 0.4), [(-0.3, 0.4)] * 3, ()),
        ((None, 0.1), [(None, 0.1)] * 3, ()),
        ("simplex", [(0, 1)] * 3, ({"type": "eq", "fun": lambda x: x.sum() - 1},)),
        (lambda x: x.clip(-0.3, 0.4), [(-0.3, 0.4)] * 3, ()),
    ],
    ids=["nonnegative", "box", "upper", "simplex", "function"],
)
@pytest.mark.long
def test_constrained_run_finds_scipys_solution(constraint, bounds, equal, library):
    problem = quadratic(0, 3, 4, 5.0)
    judge = scipy_minimize(
        problem.value,
        np.full(3, 0.1),
        jac=problem.hypergradient,
        bounds=bounds,
        constraints=equal,
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    assert judge.success
    result = untuned.minimize(
        *given(problem, library).positional,
        method=untuned.solvers.DTFBO(c_y=1e-10, c_v=1e-10),
        constraint=constraint,
        max_steps=300,
    )
    np.testing.assert_allclose(as_numpy(result.x), judge.x, atol=1e-4)
    # The norm in the history is that of what still moves x, zero at a constrained solution.
    assert result.history["hypergrad_norm"][-1] < 1e-3
    assert np.linalg.norm(problem.hypergradient(judge.x)) > 0.1


@pytest.mark.long
def test_start_is_brought_into_the_set(library, method):
    task = given(quadratic(0, 3, 4, 5.0), library).positional
    result = untuned.minimize(*task, method=method, constraint="simplex", max_steps=1)
    x = as_numpy(result.state.x)
    assert np.all(x >= 0)
    assert x.sum() == pytest.approx(1)


def test_a_leaf_without_entries_stays_as_it_is_on_the_simplex(library):
    ops = get(library)
    tree = {"none": ops.asarray(np.zeros((2, 0))), "some": ops.asarray(np.zeros(4))}
    found = ops.simplex(tree)
    assert tuple(found["none"].shape) == (2, 0)
    np.testing.assert_allclose(as_numpy(found["some"]), 0.25)


def test_simplex_of_large_entries_sums_to_one(library):
    """After a step that was far too long, float32 must not leave the simplex."""
    ops = get(library)
    for entries in ([1e10, 0.0, 5e9], [-3e12, -3e12, 7.0], [2e9, 2e9, 2e9, -1.0]):
        found = ops.to_numpy(ops.simplex(ops.asarray(np.array(entries, np.float32))))
        assert found.sum() == pytest.approx(1, abs=1e-6)
        assert found.min() >= 0
