"""f or g turning non-finite ends a run at that step, with the best point kept."""

import dataclasses
import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import untuned
from refusals import array, both_libraries, f, g, inf, minimize, nan
from untuned.ops.cache import reusable
from untuned.run import ending
from untuned.solvers import ABO, DTFBO, MAID, SOBA, STFBO, BiSLS

MAX_STEPS = 30
BAD = 10  # a step at which x is still on its way, and which ends no seven steps
# The horizon is given so that the path does not depend on max_steps, and the cap keeps the runs
# short in which the Hessian of g vanishes.
METHODS = {
    "s-tfbo": STFBO(alpha0=4.0),
    "d-tfbo": DTFBO(alpha0=10.0, horizon=MAX_STEPS, cap=100),
    "d-tfbo, fixed loops": DTFBO(alpha0=10.0, inner_steps=5, linear_steps=3),
}
WHERE = {"jax": jnp.where, "torch": torch.where}
STOP = {"jax": jax.lax.stop_gradient, "torch": torch.Tensor.detach}

both_methods = pytest.mark.parametrize("method", ["s-tfbo", "d-tfbo"])


@cache
def path_of(library, method):
    """x[0] and y[0] after 0, 1, ... steps of the sound problem."""
    x, y = [0.0], [0.0]

    def keep(snapshot):
        x.append(float(snapshot.x[0]))
        y.append(float(snapshot.y[0]))

    run(library, method, {}, eval_every=1, callback=keep)
    return {"x": x, "y": y}


def run(library, method, functions, **options):
    options = {"method": METHODS[method], "max_steps": MAX_STEPS} | options
    return minimize(library, **functions, **options)


def midway(values, step):
    """A level the values are below until `step`, and above from it on."""
    before, after = max(values[:step]), min(values[step : step + 5])
    assert before + 1e-6 < after
    return (before + after) / 2


OF_F, OF_G = "the outer function f became ", "the inner function g became "
OF_GRADIENT = "the gradient of g in y became "

# What goes bad, and how the message may name it. `b(u, w)` is u where it is bad and w where not;
# `root` is zero with slope inf where it is bad, and one with slope zero where not.
IN_F = {
    "f nan, no gradient": (lambda f, b: b(nan, f), [OF_F + "nan"]),
    "f nan": (lambda f, b: f * b(nan, 1.0), [OF_F + "nan"]),
    "f inf": (lambda f, b: f + b(inf, 0.0), [OF_F + "inf"]),
    "f -inf": (lambda f, b: f + b(-inf, 0.0), [OF_F + "-inf"]),
}
IN_G = {
    "g nan, no gradient": (lambda g, b, root: b(nan, g), [OF_G + "nan"]),
    "g inf, right gradient": (lambda g, b, root: g + b(inf, 0.0), [OF_G + "inf"]),
    "g nan": (lambda g, b, root: g * b(nan, 1.0), [OF_G + "nan", OF_GRADIENT + "nan"]),
    "gradient of g inf": (lambda g, b, root: g + root, [OF_GRADIENT]),
    "gradient of g nan": (lambda g, b, root: g + 0.0 * root, [OF_GRADIENT + "nan"]),
}
KINDS = IN_F | IN_G


def damage(library, kind, level, variable="x", until=inf):
    """f and g, of which one goes bad as `kind` says once a variable is above `level`."""
    where, stop = WHERE[library], STOP[library]
    change, _ = KINDS[kind]

    def bad(x, y):
        at = {"x": x, "y": y}[variable][0]
        return lambda yes, no: where((at > level) & (at < until), yes, no)

    def outer(x, y):
        return change(f(x, y), bad(x, y)) if kind in IN_F else f(x, y)

    def inner(x, y):
        root = (bad(x, y)(y - stop(y), 1.0) ** 0.5).sum()
        return change(g(x, y), bad(x, y), root) if kind in IN_G else g(x, y)

    return {"outer": reusable(outer), "inner": reusable(inner)}


def numbers(result):
    return [np.asarray(part) for part in (result.x, result.y, result.v)]


def assert_diverged(result, kind):
    """The run ended at once, says where and why, and gives back finite numbers."""
    assert result.status == "diverged", result.message
    assert not result.success
    assert result.steps < MAX_STEPS
    _, names = KINDS[kind]
    starts = tuple(f"Diverged at step {result.steps}: {name}" for name in names)
    assert result.message.startswith(starts)
    assert all(np.isfinite(part).all() for part in numbers(result))
    assert result.state is not None


def assert_sound_at(result, functions, library):
    """The point kept is one where nothing is bad."""
    x, y = (array(library, np.asarray(part)) for part in (result.x, result.y))
    for role, function in functions.items():
        assert math.isfinite(float(function(x, y))), f"{role} is not finite at the point kept"


@both_libraries
@both_methods
@pytest.mark.parametrize(
    "kind",
    ["f nan, no gradient", "f inf", "g nan, no gradient", "g nan", "gradient of g inf",
     "gradient of g nan"],
)  # fmt: skip
@pytest.mark.long
def test_divergence_ends_a_run_at_once(library, method, kind):
    functions = damage(library, kind, midway(path_of(library, method)["x"], BAD - 1))
    steps = []
    for eval_every in (1, 7):
        result = run(library, method, functions, eval_every=eval_every)
        assert_diverged(result, kind)
        assert_sound_at(result, functions, library)
        assert result.history["step"][-1] == result.steps
        steps.append(result.steps)
    # Step BAD is the first to compute at the bad x, which step BAD - 1 made. The bare value of g
    # belongs to a point rather than to a step, so it may be noticed as soon as the point is made.
    earliest = BAD - 1 if kind.startswith("g ") else BAD
    assert steps[0] == steps[1], "where a run ends depends on how often it is recorded"
    assert earliest <= steps[0] <= BAD


@pytest.mark.long
@both_libraries
@pytest.mark.parametrize("kind", ["f -inf", "gradient of g inf", "gradient of g nan"])
def test_divergence_in_loops_of_fixed_length(library, kind):
    # No test ends these loops, so a bad gradient of g spreads to y and f; g is to be named.
    method = "d-tfbo, fixed loops"
    functions = damage(library, kind, midway(path_of(library, method)["x"], BAD - 1))
    result = run(library, method, functions)
    assert_diverged(result, kind)
    assert_sound_at(result, functions, library)
    assert result.steps == BAD


@pytest.mark.long
@both_libraries
@both_methods
@pytest.mark.parametrize("kind", ["f nan, no gradient", "g nan"])
def test_divergence_where_y_goes_bad(library, method, kind):
    # The y a step of S-TFBO leaves behind is not the one it measured: it may be the first bad one.
    # D-TFBO may come to a bad y inside a loop, long before it ends a step with one.
    made_by = 8
    functions = damage(library, kind, midway(path_of(library, method)["y"], made_by), "y")
    result = run(library, method, functions, eval_every=7)
    assert_diverged(result, kind)
    assert_sound_at(result, functions, library)
    assert result.steps <= made_by + 1


@pytest.mark.long
@both_libraries
@both_methods
def test_divergence_after_the_last_regular_record(library, method):
    # The run is over before the next record is due; g must be looked at all the same.
    kind = "g nan, no gradient"
    functions = damage(library, kind, midway(path_of(library, method)["x"], BAD - 1))
    result = run(library, method, functions, max_steps=BAD + 1, eval_every=7)
    assert_diverged(result, kind)
    assert BAD - 1 <= result.steps <= BAD


@both_libraries
@both_methods
def test_divergence_at_one_point_of_the_way(library, method):
    # g is inf at one point and finite again after it. Its value is asked for at records, since no
    # method needs it (docs/architecture.md), so a record at every step sees it.
    kind, way = "g inf, right gradient", path_of(library, method)["x"]
    functions = damage(library, kind, midway(way, BAD - 1), until=midway(way, BAD))
    result = run(library, method, functions, eval_every=1)
    assert_diverged(result, kind)
    assert BAD - 1 <= result.steps <= BAD


@pytest.mark.long
@both_libraries
@both_methods
@pytest.mark.parametrize(
    "kind", ["f nan, no gradient", "f nan", "f inf", "g nan, no gradient", "gradient of g nan"]
)
def test_divergence_at_the_start_gives_back_the_start(library, method, kind):
    functions = damage(library, kind, level=-inf)
    x0, y0 = array(library, [0.25, 0.5]), array(library, [0.75, 1.0])
    result = run(library, method, functions, x0=x0, y0=y0)
    assert_diverged(result, kind)
    assert result.steps <= 1
    np.testing.assert_array_equal(np.asarray(result.x), [0.25, 0.5])
    np.testing.assert_array_equal(np.asarray(result.y), [0.75, 1.0])


@pytest.mark.long
@both_libraries
@both_methods
@pytest.mark.parametrize("kind", ["f nan, no gradient", "g nan, no gradient"])
def test_divergence_is_not_taken_for_convergence(library, method, kind):
    # The bad one is flat and the other at its minimum, so every norm is zero.
    functions = damage(library, kind, level=-inf)
    ones = array(library, [1.0, 1.0])
    assert_diverged(run(library, method, functions, x0=ones, y0=ones, tol=1e-2), kind)


@both_libraries
@both_methods
def test_divergence_in_minibatches(library, method):
    where, level = WHERE[library], midway(path_of(library, method)["x"], 3)
    functions = {
        "outer": lambda x, y, batch: f(x, y, batch) * where(x[0] > level, nan, 1.0),
        "inner": g,
    }
    data = array(library, np.ones((6, 2)))  # every batch is the same, so the path is known
    result = run(library, method, functions, outer_data=data, batch_size=2, eval_every=7)
    assert_diverged(result, "f nan")
    assert result.steps == 4


@pytest.mark.long
@both_libraries
@both_methods
def test_divergence_is_kept_by_a_checkpoint(library, method, tmp_path):
    functions = damage(library, "f nan", midway(path_of(library, method)["x"], BAD - 1))
    first, again = (run(library, method, functions, checkpoint=tmp_path / "run") for _ in "12")
    for result in (first, again):
        assert_diverged(result, "f nan")
    # The first of them compiled, which on a busy machine takes long enough to be said.
    verdicts = [result.message.partition(" Compiling took")[0] for result in (first, again)]
    assert verdicts[0] == verdicts[1]
    assert first.steps == again.steps == BAD
    for one, other in zip(numbers(first), numbers(again), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", untuned.solvers.names())
def test_what_a_message_advises_makes_first_steps_shorter(name):
    """`start_values` are to be raised and `first_steps` lowered: one step of each is the judge."""

    def moved(solver):
        """On slopes along which no search finds an end."""
        x = y = torch.zeros(2).double()
        falling = lambda x, y: x.sum()
        result = untuned.minimize(
            falling, lambda x, y: 1e-4 * ((y - 1) ** 2).sum(), x, y, method=solver, max_steps=2
        )
        return float(torch.cat([result.state.x, result.state.y]).norm())

    method = untuned.solvers.get(name)
    factors = dict.fromkeys(method.start_values, 10.0) | dict.fromkeys(method.first_steps, 0.1)
    usual = method()
    changed = {name: factor * getattr(usual, name) for name, factor in factors.items()}
    if changed:
        assert 0 < moved(dataclasses.replace(usual, **changed)) < 0.9 * moved(usual)


@pytest.mark.parametrize(
    ("solver", "advice"),
    [
        (STFBO(), ", or raise alpha0, beta0, gamma0, which makes the first steps shorter."),
        (SOBA(), ", or try smaller step_size."),
        (BiSLS(), ", or try smaller first_x, first_y."),
        (MAID(), ", or try smaller beta0."),
        (ABO(), ", or try other values of strong_convexity."),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_advice_after_a_divergence(solver, advice):
    columns = ("outer", "inner_grad_norm", "residual_norm", "hypergrad_norm", "inner")
    record = dict.fromkeys(columns, nan) | {"step": 3, "indefinite": 0}
    limits = {"tol": None, "max_steps": 9}
    assert ending.sentence("diverged", record, 1.0, limits, "float64", solver).endswith(advice)


def test_advice_where_a_cap_is_hit():
    record = {"step": 3, "indefinite": 0, "hypergrad_norm": 0.5, "cap_hits": 3}
    text = [
        ending.sentence("cap_hit", record, 1.0, {"tol": None}, "float64", solver)
        for solver in (DTFBO(), MAID())
    ]
    assert "Raise cap, loosen c_y or c_v, or check" in text[0]
    assert "Raise cap, or check" in text[1]
