"""The driver: records, statuses, limits, callbacks, the best point, pictures, the bar."""

import subprocess
import sys
import time

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import torch

import untuned
from libraries import as_numpy, given
from reference.problems import quadratic, regularization
from untuned.run.result import COLUMNS, STATUSES
from untuned.solvers import (
    ABO,
    AID,
    BSA,
    DTFBO,
    F2SA,
    F2SA2,
    ITD,
    STFBO,
    VRBO,
    AmIGO,
    BiSPS,
    StocBiO,
)

TASK = given(quadratic(0, 3, 4, 5.0), "jax").positional


def follow(x, y):
    """g whose solution is y = x."""
    return ((y - x) ** 2).sum()


def toward_one(x, y):
    return ((y - 1.0) ** 2).sum()


@pytest.mark.long
def test_default_method_is_auto():
    result = untuned.minimize(*TASK, max_steps=2)
    same = untuned.minimize(*TASK, max_steps=2, method=untuned.solvers.Auto())
    assert type(result.state) is type(same.state)
    np.testing.assert_array_equal(result.x, same.x)


def test_history_has_all_columns_of_equal_length(method):
    result = untuned.minimize(*TASK, method=method, max_steps=25, eval_every=10)
    promised = {
        *("step", "seconds", "outer", "inner_grad_norm", "residual_norm", "hypergrad_norm"),
        *("step_x", "step_y", "step_v", "inner_steps", "linear_steps"),
        *("outer_grad", "inner_grad", "hvp", "cross"),
    }
    assert promised <= set(result.history)
    assert result.history["step"].tolist() == [10, 20, 25]
    assert {len(result.history[name]) for name in result.history} == {3}
    assert all(isinstance(result.history[name], np.ndarray) for name in result.history)
    assert np.all(np.diff(result.history["seconds"]) > 0)
    for name, count in result.counts.items():
        assert result.history[name][-1] == count
    frame = result.history.to_frame()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == list(COLUMNS)
    assert "3 records" in repr(result.history)


def test_default_records_are_about_a_hundred():
    assert len(untuned.minimize(*TASK, method="s-tfbo", max_steps=950).history["step"]) == 95


def test_max_steps_status(method, library):
    task = given(quadratic(0, 3, 4, 5.0), library).positional
    result = untuned.minimize(*task, method=method, max_steps=3)
    assert (result.status, result.steps, result.success) == ("max_steps", 3, False)
    assert "max_steps=3" in result.message
    assert result.status in STATUSES
    assert result.message in repr(result)


@pytest.mark.long
@pytest.mark.parametrize("every", [1, 13, 1000])
def test_converged_status_stops_at_the_same_step_whatever_the_chunk(method, library, every):
    task = given(quadratic(0, 3, 4, 5.0), library).positional
    options = {"c_y": 1e-9, "c_v": 1e-9} if method == "d-tfbo" else {}
    solver = untuned.solvers.get(method)(**options)
    result = untuned.minimize(*task, method=solver, tol=1e-2, eval_every=every)
    assert (result.status, result.success) == ("converged", True)
    assert result.steps < 1000
    each = untuned.minimize(*task, method=solver, tol=None, max_steps=result.steps, eval_every=1)
    norms = each.history["hypergrad_norm"]
    if method == "d-tfbo":  # max_steps is its T, so only the first norm is comparable
        assert result.history["hypergrad_norm"][-1] <= 1.001e-2 * norms[0]
    else:
        assert norms[-1] <= 1e-2 * norms[0]
        # Not before y and v were as far down: a small hypergradient alone proves nothing.
        done = (
            (norms <= 1e-2 * norms[0])
            & (each.history["inner_grad_norm"] <= 1e-2 * each.history["inner_grad_norm"].max())
            & (each.history["residual_norm"] <= 1e-2 * each.history["residual_norm"].max())
        )
        assert np.flatnonzero(done)[0] == result.steps - 1


def test_a_first_hypergradient_of_zero_does_not_count_as_converged():
    """v starts at zero, so where f does not depend on x the first estimate is exactly zero."""
    result = untuned.minimize(
        toward_one, follow, np.zeros(2), np.zeros(2), method="s-tfbo", tol=1e-2, max_steps=20_000
    )
    assert result.status == "converged"
    np.testing.assert_allclose(result.x, 1.0, atol=0.05)


def test_converged_without_tol_when_nothing_is_left_to_do(library):
    zeros = np.zeros(2) if library == "jax" else torch.zeros(2, dtype=torch.float64)
    result = untuned.minimize(lambda x, y: (y**2).sum(), follow, zeros, zeros, max_steps=5000)
    assert result.status == "converged"
    assert result.steps < 5000
    np.testing.assert_array_equal(as_numpy(result.x), 0.0)


def test_stalled_status():
    """Steps below the rounding of x cannot move it: 1e8 and steps of 1e-6 in float32."""
    far = np.full(2, 1e8, np.float32)
    solver = STFBO(alpha0=1e6)
    result = untuned.minimize(
        lambda x, y: x.sum(), lambda x, y: (y**2).sum(), far, np.zeros(2, np.float32),
        method=solver, max_steps=5000, eval_every=1000,
    )  # fmt: skip
    assert result.status == "stalled"
    assert result.steps == 100
    assert "float32" in result.message
    assert "float64" in result.message


@pytest.mark.long
def test_max_seconds_status(method):
    task = given(regularization(1, 40, 30, 6), "jax")
    start = time.perf_counter()
    result = untuned.minimize(
        *task.positional, **task.data, method=method, max_steps=10**9, max_seconds=0.3, batch_size=8
    )
    assert result.status == "max_seconds"
    # Where g is watched at every step, a part of the limit goes to that.
    assert time.perf_counter() - start >= 0.3
    assert 0.03 < result.seconds < 3
    assert "max_seconds=0.3" in result.message


@pytest.mark.long
def test_cap_hit_status(library):
    task = given(quadratic(0, 3, 4, 5.0), library).positional
    result = untuned.minimize(*task, method=DTFBO(cap=2, c_y=1e-12, c_v=1e-12), max_steps=20)
    assert result.status == "cap_hit"
    assert result.history["cap_hits"][-1] == 20
    assert result.history["inner_steps"].max() == 2
    assert "cap" in result.message
    rare = untuned.minimize(*task, method=DTFBO(cap=2, c_y=1e4, c_v=1e4), max_steps=20)
    assert rare.status == "max_steps"


@pytest.mark.long
def test_callback_sees_snapshots_and_can_stop(library, method):
    task = given(quadratic(0, 3, 4, 5.0), library).positional
    seen = []

    def callback(snapshot):
        seen.append(snapshot)
        return np.bool_(snapshot.step >= 6)  # as a comparison of arrays would give

    result = untuned.minimize(*task, method=method, max_steps=50, eval_every=2, callback=callback)
    assert (result.status, result.steps) == ("callback", 6)
    assert [snapshot.step for snapshot in seen] == [2, 4, 6]
    assert seen[-1].record["step"] == 6
    np.testing.assert_array_equal(as_numpy(seen[-1].x), as_numpy(result.state.x))
    assert type(seen[0].x) is type(task[2])


def test_clock_leaves_out_callbacks_and_compilation():
    result = untuned.minimize(
        *TASK, method="s-tfbo", max_steps=3, eval_every=1, callback=lambda _: time.sleep(0.2)
    )
    assert result.seconds < 0.3
    assert result.compile_seconds > 0


@pytest.mark.long
def test_seed_decides_the_rows(library):
    task = given(regularization(1, 40, 30, 6), library)

    def x_of(seed):
        result = untuned.minimize(
            *task.positional, **task.data, method="s-tfbo", max_steps=10, batch_size=8, seed=seed
        )
        return as_numpy(result.x)

    assert np.array_equal(x_of(1), x_of(1))
    assert not np.array_equal(x_of(1), x_of(2))


@pytest.mark.long
def test_one_side_may_be_whole(library):
    task = given(regularization(1, 40, 30, 6), library)
    for sizes in ((8, None), (None, 8)):
        result = untuned.minimize(
            *task.positional, **task.data, method="s-tfbo", max_steps=5, batch_size=sizes
        )
        assert result.steps == 5


def test_best_point_is_kept_where_the_last_is_worse():
    """x is driven past its optimum by a step far too long, and f rises again."""
    solver = DTFBO(alpha0=1e-3, eta_x=3.0, c_y=1e-12, c_v=1e-12)
    x0, y0 = np.zeros(1), np.zeros(1)
    result = untuned.minimize(toward_one, follow, x0, y0, method=solver, max_steps=2, eval_every=1)
    # First move: from 0 by 3 to 3; f there is 4, above the 1 at the start.
    np.testing.assert_allclose(result.history["outer"], [1.0, 4.0], atol=1e-3)
    np.testing.assert_allclose(result.x, 0.0)
    np.testing.assert_allclose(result.state.x, 3 - 12 / np.sqrt(20), rtol=1e-5)


def test_last_point_is_kept_where_it_is_the_best(method):
    result = untuned.minimize(*TASK, method=method, max_steps=50)
    np.testing.assert_array_equal(result.x, result.state.x)
    np.testing.assert_array_equal(result.y, result.state.y)


def test_an_unsolved_start_is_not_taken_for_the_best():
    """f(x0, y0) is zero only because y0 is far from y*(x0); S-TFBO must not return there."""
    x0, y0 = np.full(2, -3.0), np.ones(2)
    result = untuned.minimize(toward_one, follow, x0, y0, method="s-tfbo", max_steps=500)
    np.testing.assert_array_equal(result.x, result.state.x)


SLOW = {"step_size": 0.01, "outer_ratio": 0.1}  # ten steps of y leave four fifths of the way


@pytest.mark.parametrize(
    "solver",
    [
        ABO(strong_convexity=2.0), AID(**SLOW), AmIGO(**SLOW), BSA(**SLOW), BiSPS(longest_y=0.01),
        F2SA(step_size=0.02, delta=0.1), F2SA2(**SLOW), ITD(**SLOW), StocBiO(**SLOW),
        VRBO(**SLOW, linear_steps=3),
    ],
    ids=lambda solver: solver.name,
)  # fmt: skip
def test_an_unsolved_start_is_not_the_best_of_a_double_loop(solver):
    """A few steps on y do not solve for it; Phi, in closed form, judges the x that comes back."""

    def phi(x):
        return float((x - 1.0) ** 2 + (x - 3.0) ** 2)

    def outer(x, y):  # its least value, 0, is at the start; along y = x it is 2, at x = 2
        return toward_one(x, y) + ((x - 3.0) ** 2).sum()

    x0, y0 = torch.full((1,), 3.0).double(), torch.ones(1).double()
    result = untuned.minimize(outer, follow, x0, y0, method=solver, max_steps=60)
    assert phi(result.state.x) < 3.7
    assert phi(result.x) < 3.7 < phi(x0)


@pytest.mark.long
def test_numpy_in_numpy_out_jax_in_jax_out():
    assert type(untuned.minimize(*TASK, max_steps=1).x) is np.ndarray
    x0, y0 = jnp.zeros(2), jnp.zeros(2)
    result = untuned.minimize(toward_one, follow, x0, y0, max_steps=1)
    assert isinstance(result.x, type(x0))
    assert result.x.dtype == jnp.float32


def test_python_scalars_are_variables():
    result = untuned.minimize(
        lambda x, y: (y - 1.0) ** 2, lambda x, y: (y - x) ** 2, 0.0, 0.0, max_steps=300
    )
    assert result.x.shape == ()
    np.testing.assert_allclose(result.x, 1.0, atol=0.1)


def test_torch_graph_does_not_grow():
    x0 = torch.zeros(2, requires_grad=True)
    result = untuned.minimize(toward_one, follow, x0, torch.nn.Parameter(torch.zeros(2)))
    assert not result.x.requires_grad
    assert result.state.y.grad_fn is None


def test_gradient_recording_may_be_off_around_a_run():
    with torch.no_grad():
        result = untuned.minimize(toward_one, follow, torch.zeros(2), torch.zeros(2), max_steps=5)
    assert float(result.history["hypergrad_norm"][0]) > 0
    np.testing.assert_allclose(result.x.numpy(), 1.0, atol=1e-3)


@pytest.mark.long
def test_extending_an_anytime_run_is_the_longer_run(library):
    """The anytime rule does not know T, so 20 steps are the start of 40."""
    task = given(quadratic(0, 3, 4, 5.0), library).positional
    solver = DTFBO(horizon="anytime", c_y=1e-3, c_v=1e-3)
    short, long = (
        untuned.minimize(*task, method=solver, max_steps=n, eval_every=5) for n in (20, 40)
    )
    assert np.array_equal(short.history["outer"], long.history["outer"][:4])


def test_plot_shows_loss_norms_and_steps():
    figure = untuned.minimize(*TASK, method="s-tfbo", max_steps=30).plot()
    titles = [panel.get_title() for panel in figure.axes]
    assert titles == ["Outer loss f(x, y)", "Gradient norms", "Step sizes"]
    assert [len(panel.lines) for panel in figure.axes] == [1, 3, 3]
    one = untuned.minimize(*TASK, method="s-tfbo", max_steps=1).plot()
    assert one.axes[0].lines[0].get_marker() == "o"


def test_progress_bar_is_shown_only_when_asked(capsys):
    untuned.minimize(*TASK, method="s-tfbo", max_steps=5)
    assert capsys.readouterr().out == ""
    untuned.minimize(*TASK, method="s-tfbo", max_steps=5, progress=True)
    shown = capsys.readouterr().out
    assert "s-tfbo" in shown
    assert "5/5" in shown


def test_small_alpha0_warns_and_runs():
    with pytest.warns(UserWarning, match=r"alpha0=0\.5.*theory asks for alpha0 >= 1"):
        solver = STFBO(alpha0=0.5)
    assert untuned.minimize(*TASK, method=solver, max_steps=2).steps == 2


@pytest.mark.process
def test_import_loads_neither_jax_nor_torch():
    code = (
        "import sys, untuned; heavy = {'jax', 'torch', 'sklearn', 'matplotlib', 'pandas', 'scipy'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_a_small_hypergradient_is_not_enough_where_y_is_far_from_solved():
    """g = exp(-y) has no minimum, and after a while its gradient hardly falls."""
    start = torch.full((2,), 0.5).double(), torch.full((2,), 0.2).double()
    result = untuned.minimize(
        lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: torch.exp(-y).sum() + 0 * x.sum(), *start,
        method=AID(0.1, 0.1), max_steps=2000, tol=1e-3,
    )  # fmt: skip
    assert result.status != "converged"
