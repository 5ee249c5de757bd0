"""`max_seconds` and Ctrl-C inside a step: loops end with what they have, and a run can go on."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time

import numpy as np
import pytest
import torch

import untuned
from untuned.run import backend, ending
from untuned.run.checkpoint import resume
from untuned.util import watch

SIZE = 800  # variables of y: products take a millisecond, so a step of thousands takes seconds
LIMIT = 0.3


def stiff(library):
    """g = 1/2 <y - x, H (y - x)> with curvatures from 1e-6 to 1, which gradient steps crawl on."""
    rng = np.random.default_rng(0)
    basis, _ = np.linalg.qr(rng.normal(size=(SIZE, 40)))
    root = (basis * np.logspace(-3, 0, 40)) @ basis.T
    matrix = root @ root + 1e-6 * np.eye(SIZE)
    if library == "torch":
        import torch

        array = torch.as_tensor
    else:
        array = np.asarray
    f = lambda x, y: 0.5 * ((y - 1.0) ** 2).sum()
    g = lambda x, y, rows: 0.5 * ((y - x) * (rows[0] @ (y - x))).sum()
    start = array(rng.normal(size=SIZE)), array(np.zeros(SIZE))
    return (f, g, *start), {"inner_data": (array(matrix),)}


def solver(name):
    if name == "d-tfbo":  # its while-loops have far to go
        return untuned.solvers.DTFBO(c_y=1e-12, c_v=1e-12, cap=10**6)
    if name == "d-tfbo, counted":
        return untuned.solvers.DTFBO(inner_steps=10**5, linear_steps=10**5)
    return untuned.solvers.get(name)()


NAP = 0.01  # of every evaluation
# Evaluations beyond a limit: the three that are allowed, and five outside of the run's clock,
# before it begins and where it ends.
MORE = 8


def sleepy(library, naps):
    """A problem each of whose evaluations takes at least a nap, which is noted."""

    def nap(_):
        naps.append(time.perf_counter())
        time.sleep(NAP)
        return np.float32(1)

    if library == "torch":
        import torch

        array = torch.as_tensor
        one = lambda y: float(nap(None))
    else:
        import jax
        import jax.numpy as jnp

        array = np.asarray
        number = jax.ShapeDtypeStruct((), jnp.float32)
        # Of y, or XLA would take one nap for a whole loop.
        one = lambda y: jax.pure_callback(nap, number, jax.lax.stop_gradient(y.sum()))
    scale = array(np.logspace(-1, 1, 6, dtype=np.float32))
    f = lambda x, y: ((y - 1.0) ** 2).sum()
    # Fourth powers take Newton's method many steps; every derivative needs the nap's result.
    g = lambda x, y: (scale * (y * one(y) - x) ** 4 + 0.01 * y**2).sum()
    zeros = np.zeros(6, np.float32)
    return f, g, array(zeros), array(zeros + 3)


LONG = {
    "auto": untuned.solvers.get("auto")(),
    "d-tfbo": untuned.solvers.DTFBO(c_y=1e-9, c_v=1e-9),
    "d-tfbo, counted": untuned.solvers.DTFBO(inner_steps=200, linear_steps=200),
    "amigo": untuned.solvers.AmIGO(0.01, 0.1, inner_steps=200),
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("library", "name"), [("jax", "auto"), *(("torch", name) for name in LONG)]
)
def test_a_long_step_is_cut(library, name):
    naps: list[float] = []
    limit = 3 * NAP
    result = untuned.minimize(
        *sleepy(library, naps), method=LONG[name], max_seconds=limit, eval_every=1, max_steps=1
    )
    # However busy the machine is, an evaluation takes a nap or longer.
    assert len(naps) <= limit / NAP + MORE
    assert result.status == "max_seconds"
    assert result.steps == 0
    assert "inside the first step" in result.message
    naps.clear()
    untuned.minimize(
        *sleepy(library, naps), method=LONG[name], max_seconds=1, eval_every=1, max_steps=1
    )
    assert len(naps) > limit / NAP + MORE  # or there was nothing to cut


def with_long_steps(name):
    """Any method, with steps of hundreds of evaluations where it has loops at all."""
    if name in LONG:
        return LONG[name]
    method = untuned.solvers.get(name)
    known = {field.name for field in dataclasses.fields(method)}
    long = {"inner_steps": 200, "linear_steps": 200, "step_size": 0.01, "eps0": 1e-9}
    return method(**{key: value for key, value in long.items() if key in known})


@pytest.mark.long
@pytest.mark.parametrize(
    ("library", "name"),
    [
        *(("torch", name) for name in untuned.solvers.names()),
        *(("jax", name) for name in ("d-tfbo", "itd", "sustain", "s-tfbo")),
    ],
)
def test_every_method_keeps_a_limit(library, name):
    naps: list[float] = []
    limit = 10 * NAP
    result = untuned.minimize(
        *sleepy(library, naps), method=with_long_steps(name), max_seconds=limit, eval_every=1,
        max_steps=10**6,
    )  # fmt: skip
    assert result.status in ("max_seconds", "cap_hit", "diverged")
    assert len(naps) <= limit / NAP + MORE


def test_no_long_step_is_made_and_thrown_away(monkeypatch):
    """A compiled step of many evaluations is made once, in the run, whose clock sees it."""
    monkeypatch.setattr(backend, "chosen", lambda problem, solver, seed: problem)
    naps: list[float] = []
    method = untuned.solvers.DTFBO(inner_steps=20, linear_steps=20)
    result = untuned.minimize(*sleepy("jax", naps), method=method, max_steps=1)
    assert result.steps == 1
    assert 20 <= len(naps) < 40


def test_a_divergence_is_not_traced_beyond_the_limit():
    """Steps that are made again, to find the one that diverged, keep the limit too."""
    import torch

    calls = []

    def g(x, y):
        calls.append(time.perf_counter())
        time.sleep(NAP)
        far = torch.where(y.abs() > 2, torch.inf, 1.0)
        return ((y - x) ** 2 * far).sum() - 4 * (y**2).sum()

    zero = torch.zeros(2, dtype=torch.float64)
    result = untuned.minimize(
        lambda x, y: (y**2).sum(), g, zero, zero + 1, max_seconds=30 * NAP, max_steps=100,
        method=untuned.solvers.SOBA(0.01, 1e-9), eval_every=10**6,
    )  # fmt: skip
    assert result.status in ("diverged", "max_seconds")
    assert len(calls) <= 30 + MORE


@pytest.mark.long
def test_a_long_first_step_is_saved_inside(tmp_path, monkeypatch):
    monkeypatch.setattr(resume, "LONG", 0.05)
    monkeypatch.setattr(resume, "SAVE_SHARE", 0)
    saved, save = [], resume.Saver.save
    monkeypatch.setattr(
        resume.Saver, "save",
        lambda self, now, *rest: (saved.append(now.carry.state), save(self, now, *rest))[1],
    )  # fmt: skip
    arguments, data = stiff("torch")
    _, g, x0, _ = arguments
    settings = {**data, "method": solver("d-tfbo"), "checkpoint": tmp_path / "run"}
    result = untuned.minimize(*arguments, **settings, max_seconds=2 * LIMIT)
    assert result.status == "max_seconds"
    values = [float(g(x0, state.y, data["inner_data"])) for state in saved]
    assert len(values) >= 3
    assert values[-1] < values[0]
    assert result.steps == 0


def test_saves_that_find_nothing_new_end(tmp_path, monkeypatch):
    """A first step whose y does not change before its end is not cut for ever."""
    import torch

    monkeypatch.setattr(resume, "LONG", 0.0)
    zero = torch.zeros(3, dtype=torch.float64)
    result = untuned.minimize(
        lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum(), zero, zero + 1,
        checkpoint=tmp_path / "run", max_seconds=60, tol=1e-3,
    )  # fmt: skip
    assert result.status == "converged"


@pytest.mark.long
@pytest.mark.parametrize("name", ["d-tfbo", "d-tfbo, counted"])
def test_y_is_kept_and_the_run_goes_on(library, name, tmp_path):
    arguments, data = stiff(library)
    settings = {**data, "method": solver(name), "checkpoint": tmp_path / "run"}
    _, g, x0, y0 = arguments
    inner = lambda y: float(g(x0, y, data["inner_data"]))
    first = untuned.minimize(*arguments, **settings, max_seconds=LIMIT)
    assert first.steps == 0
    assert (np.asarray(first.x) == np.asarray(x0)).all()
    assert inner(first.y) < inner(y0)
    second = untuned.minimize(*arguments, **settings, max_seconds=LIMIT)
    assert second.status == "max_seconds"
    assert inner(second.y) < inner(first.y)
    assert second.seconds > first.seconds


@pytest.mark.long
def test_ctrl_c_inside_a_step(library):
    arguments, data = stiff(library)
    timer = threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    result = untuned.minimize(*arguments, **data, method=solver("d-tfbo"), max_seconds=60)
    timer.join()
    assert result.status == "interrupted"
    assert result.seconds < 30


@pytest.mark.long
@pytest.mark.parametrize("name", ["s-tfbo", "soba", "auto"])
def test_steps_are_not_begun_without_time(library, name):
    """A short step more than fits is all that may be too much."""
    arguments, data = stiff(library)
    method = untuned.solvers.SOBA(0.1, 0.1) if name == "soba" else name
    result = untuned.minimize(
        *arguments, **data, method=method, max_seconds=LIMIT, max_steps=10**6, eval_every=1
    )
    if result.status == "max_seconds":
        times = result.history["seconds"]
        assert result.seconds < LIMIT * 1.05 + 3 * np.diff(times, prepend=0).max()


@pytest.mark.long
def test_a_limit_that_is_not_hit_changes_nothing(library):
    rng = np.random.default_rng(1)
    A = rng.normal(size=(40, 5))
    if library == "torch":
        import torch

        A = torch.as_tensor(A)
        x0, y0 = torch.zeros(5, dtype=A.dtype), torch.zeros(5, dtype=A.dtype)
    else:
        x0, y0 = np.zeros(5), np.zeros(5)
    f = lambda x, y, rows: ((rows @ y - 1.0) ** 2).mean()
    g = lambda x, y, rows: ((rows @ y - 1.0) ** 2).mean() + ((x - y) ** 2).sum()
    for method in ("auto", "d-tfbo"):
        runs = [
            untuned.minimize(
                f, g, x0, y0, outer_data=A[:20], inner_data=A[20:], method=method, max_steps=20,
                max_seconds=seconds,
            )
            for seconds in (None, 1000.0)
        ]  # fmt: skip
        assert (np.asarray(runs[0].x) == np.asarray(runs[1].x)).all()
        assert runs[0].counts == runs[1].counts


def test_a_watch_stays_with_what_it_said():
    answers = iter([False, True, False])
    with watch.over(lambda: next(answers)) as mine:
        assert watch.present() is mine
        with watch.over(lambda: True):
            assert watch.present() is not mine
        assert [mine.says_stop() for _ in range(3)] == [False, True, True]
    assert watch.present() is None


def test_a_watch_stops_with_the_one_around_it():
    is_over = False
    with watch.over(lambda: is_over), watch.over(lambda: False) as inside:
        assert not inside.says_stop()
        is_over = True
        assert inside.says_stop()


def test_a_run_inside_a_watch_ends_when_it_says_stop_even_within_a_step():
    torch, calls = pytest.importorskip("torch"), []

    def g(x, y):
        calls.append(y)
        return ((y - x) ** 2 * torch.arange(1.0, 1 + len(y))).sum() + (y**4).sum()

    f = lambda x, y: ((y - 1) ** 2).sum()
    zeros = torch.zeros(30)
    with watch.over(lambda: len(calls) >= 6):
        result = untuned.minimize(f, g, zeros, zeros, max_steps=1000)
    assert result.status == "max_seconds"
    assert "the limit of the run around it inside the first step" in result.message
    assert len(calls) < 15  # a whole first step takes more


def test_a_shared_watch_stops_when_any_process_wants_to():
    with watch.over(lambda: True, shared=True) as mine:
        assert not mine.says_stop()  # the others do not know yet
        assert mine.wants_stop()
        mine.agree(False)
        assert not watch.says_stop()
        mine.agree(True)
        assert watch.says_stop()


def test_the_message_says_when_time_went_to_compiling():
    assert ending.of_compilation(0.2, 3.0).startswith(" Compiling took 3.0 s")
    assert ending.of_compilation(5.0, 3.0) == ending.of_compilation(0.1, 0.5) == ""


@pytest.mark.parametrize("name", ["auto", "s-tfbo", "aid"])
def test_the_first_looks_at_functions_are_a_part_of_the_time(name):
    """Checks and the watch over g evaluate functions before the first step."""

    def slow(value):
        def called(x, y):
            time.sleep(0.1)
            return value(x, y)

        return called

    f, g = slow(lambda x, y: ((y - 1) ** 4).sum()), slow(lambda x, y: ((y - x) ** 2).sum())
    start, began = torch.zeros(3), time.perf_counter()
    result = untuned.minimize(f, g, start, start, method=name, max_seconds=0.7)
    assert result.status == "max_seconds"
    assert time.perf_counter() - began < 1.2
