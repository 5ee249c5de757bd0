"""What nights bring: kills, full disks, damaged files, Ctrl-C, raising callbacks, odd clocks."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from libraries import assert_same_result
from refusals import array, assert_one_sentence, both_libraries, f, g, minimize, refused, rows
from untuned.run import result
from untuned.run.checkpoint import storage as checkpoints
from untuned.solvers import STFBO
from untuned.util import interrupts

HERE = Path(__file__).parents[1]


def kill(count, seed, folder):
    arguments = [HERE / "kills.py", count, seed, folder]
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.process
def test_a_few_kills(tmp_path):
    assert "3 kills at any time, 3 while saving" in kill(6, 0, tmp_path)


@pytest.mark.slow
@pytest.mark.process
def test_two_hundred_kills(tmp_path):
    assert "100 kills at any time, 100 while saving" in kill(200, 1, tmp_path)


def go(library, path=None, **changes):
    """A run of 30 steps, saved wherever it can be."""
    options = {
        "inner_data": rows(library, 6), "outer_data": rows(library, 4), "batch_size": (2, 2),
        "seed": 3, "method": STFBO(), "max_steps": 30, "eval_every": 3,
    }  # fmt: skip
    return minimize(library, checkpoint=path, **options | changes)


# A disk that is full


@pytest.fixture(params=["a full disk", "a limit"])
def cramped(request, tmp_path):
    """A folder, and functions that take all of its room and give it back."""
    folder, filler = tmp_path / "cramped", tmp_path / "cramped" / "filler"
    folder.mkdir()
    if request.param == "a limit":
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        yield (
            folder,
            lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard)),
            lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard)),
        )
        return
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder]).returncode:
        pytest.skip("only root may mount a small disk")

    def fill():
        with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass

    yield folder, fill, filler.unlink
    subprocess.run(["umount", folder], check=True)


@both_libraries
@pytest.mark.process
def test_a_full_disk_costs_no_run_and_no_checkpoint(library, cramped):
    folder, fill, make_room = cramped
    path = folder / "run"
    go(library, path, max_steps=9)
    before = path.read_bytes()
    fill()
    try:
        with pytest.warns(RuntimeWarning, match="could not be saved at step") as seen:
            cut = go(library, path)
    finally:
        make_room()
    assert_one_sentence(str(seen[0].message))
    assert "the one before it, if any, is untouched" in str(seen[0].message)
    assert path.read_bytes() == before
    assert [file.name for file in folder.iterdir()] == ["run"]
    whole = go(library)
    assert_same_result(cut, whole)
    assert_same_result(go(library, path), whole)


# Files that are not what they were


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "run"
    go("torch", path)
    return path.read_bytes()


def assert_damaged(path):
    with pytest.raises(ValueError) as caught:
        checkpoints.load(path)
    assert str(path) in str(caught.value)
    assert_one_sentence(str(caught.value))


@pytest.mark.long
def test_a_checkpoint_of_any_other_length_is_refused(saved, tmp_path):
    path = tmp_path / "run"
    checkpoints.save(path, {"a": np.arange(3), ".b": np.ones((2, 2))}, {"steps": 3})
    small = path.read_bytes()
    # Every length of a small one, and of a run's every seventh.
    for content, step in ((small, 1), (saved, 7)):
        for length in range(0, len(content), step):
            path.write_bytes(content[:length])
            assert_damaged(path)


@pytest.mark.long
def test_flipped_bits_never_become_a_state(saved, tmp_path):
    rng, path = np.random.default_rng(0), tmp_path / "run"
    for _ in range(800):
        content = bytearray(saved)
        for place in rng.integers(0, 8 * len(saved), rng.integers(1, 9)):
            content[place // 8] ^= 1 << (place % 8)
        path.write_bytes(content)
        if bytes(content) != saved:
            assert_damaged(path)


def lacks(name):
    return lambda arrays, notes: (arrays.pop(name, None), notes.pop(name, None))


LAYOUTS = {
    "an array less": lacks(".state.v"),
    "a column less": lacks("history seconds"),
    "a note less": lacks("drawn"),
    "an array more": lambda arrays, notes: arrays.update({".state.w": np.zeros(2)}),
    "a note more": lambda arrays, notes: notes.update(later=1),
    "another shape": lambda arrays, notes: arrays.update({".state.v": np.zeros(3, np.float32)}),
    "another type": lambda arrays, notes: arrays.update({".state.v": np.zeros(2, np.int32)}),
    "a shorter column": lambda arrays, notes: arrays.update({"history outer": np.zeros(1)}),
    "steps in words": lambda arrays, notes: notes.update(steps="ten"),
    "steps below zero": lambda arrays, notes: notes.update(steps=-1),
    "other counts": lambda arrays, notes: notes["counts"].pop("hvp"),
}


@pytest.mark.parametrize("change", LAYOUTS)
def test_a_whole_checkpoint_of_another_version_is_refused(change, saved, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(saved)
    arrays, notes = checkpoints.load(path)
    LAYOUTS[change](arrays, notes)
    checkpoints.save(path, arrays, notes)  # so that its digest is right
    with refused(f"The checkpoint {path} was written by another version of untuned"):
        go("torch", path)


@pytest.mark.parametrize("notes", [{}, {"run": None}, {"run": {}}])
def test_a_whole_checkpoint_of_nothing_is_refused(notes, tmp_path):
    path = tmp_path / "run"
    checkpoints.save(path, {}, notes)
    with refused(f"The checkpoint {path} belongs to another run"):
        go("torch", path)


# Ctrl-C


def press():
    signal.raise_signal(signal.SIGINT)


@pytest.mark.long
@both_libraries
def test_ctrl_c_once_saves_and_gives_what_there_is(library, tmp_path, capfd):
    path = tmp_path / "run"
    cut = go(library, path, callback=lambda snapshot: snapshot.step == 12 and press())
    assert (cut.status, cut.steps, cut.success) == ("interrupted", 12, False)
    assert cut.message.startswith("Ctrl-C ended the run after 12 steps: ")
    assert "press Ctrl-C again to stop at once" in capfd.readouterr().err
    assert cut.history["step"].tolist() == [3, 6, 9, 12]
    assert np.isfinite(np.asarray(cut.x)).all()
    assert checkpoints.load(path)[1]["steps"] == 12
    assert_same_result(go(library, path), go(library))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_before_the_first_step(tmp_path):
    def outer(x, y, batch):
        if not pressed:
            pressed.append(True)
            press()
        return f(x, y, batch)

    pressed = [True]
    options = {"outer": outer, "method": "soba"}
    whole = go("torch", **options)
    pressed.clear()
    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):  # while the input is looked at there is no run yet
        go("torch", path, **options)
    assert not list(tmp_path.iterdir())
    assert_same_result(go("torch", path, **options), whole)


def test_ctrl_c_twice_is_at_once(tmp_path):
    path, reached = tmp_path / "run", []

    def callback(snapshot):
        if snapshot.step == 12:
            press()
            press()
            reached.append(snapshot)

    with pytest.raises(KeyboardInterrupt):
        go("torch", path, callback=callback)
    assert not reached
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    assert_same_result(go("torch", path), go("torch"))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_the_users_own_stays():
    presses = []
    before = signal.signal(signal.SIGINT, lambda *_: presses.append(1))
    try:
        done = go("torch", callback=lambda snapshot: press())
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.status, len(presses)) == ("max_steps", 10)


def test_estimators_end_at_the_first_ctrl_c():
    """They make many runs, so one that ends early must not be taken for one that is done."""
    with pytest.raises(KeyboardInterrupt), interrupts.passed_on():
        go("torch", callback=lambda snapshot: press())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


SLEEPER = """
import sys, time, torch, untuned
sys.path.insert(0, sys.argv[1])

def callback(snapshot):
    print(snapshot.step, flush=True)
    time.sleep(float(sys.argv[3]))

zeros = torch.zeros(2)
result = untuned.minimize(
    lambda x, y: ((y - 1.0) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum(), zeros, zeros,
    method="s-tfbo", max_steps=10**6, eval_every=5, checkpoint=sys.argv[2], callback=callback,
)
print(result.status, result.steps)
"""


@pytest.mark.parametrize(("presses", "nap"), [(1, 0.05), (2, 60)])
@pytest.mark.process
def test_ctrl_c_from_outside(presses, nap, tmp_path):
    arguments = [sys.executable, "-c", SLEEPER, str(HERE), str(tmp_path / "run"), str(nap)]
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    process.stdout.readline()  # it is in a callback now
    for _ in range(presses):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    out, err = process.communicate(timeout=20)
    assert checkpoints.load(tmp_path / "run")[1]["steps"] % 5 == 0
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    if presses == 1:
        assert process.returncode == 0
        assert out.splitlines()[-1].startswith("interrupted ")
        assert "Traceback" not in err
    else:
        assert process.returncode == -signal.SIGINT
        assert "interrupted" not in out


COMMAND = "import sys; from untuned.cli import main; main()"


@pytest.mark.process
def test_ctrl_c_ends_a_command_and_leaves_nothing(tmp_path):
    rng = np.random.default_rng(0)
    table = np.column_stack([rng.standard_normal((3000, 30)), rng.integers(0, 8, 3000)])
    names = ",".join([*(f"c{k}" for k in range(30)), "label"])
    np.savetxt(tmp_path / "train.csv", table, "%.6g", ",", header=names, comments="")
    arguments = ["clean", "train.csv", "--label", "label", "--out", "deep/out"]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments], cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    while not list(tmp_path.glob("deep/.untuned-*/new")):
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err == "untuned: stopped by Ctrl-C; nothing half-written was left.\n"
    assert [path.name for path in tmp_path.iterdir()] == ["train.csv"]


# Callbacks, NaN, clocks


@pytest.mark.long
@both_libraries
def test_a_callback_that_raises_costs_nothing(library, tmp_path):
    def callback(snapshot):
        if snapshot.step == 12:
            raise ZeroDivisionError("the user's own")

    path = tmp_path / "run"
    with pytest.raises(ZeroDivisionError, match="the user's own"):
        go(library, path, callback=callback)
    assert [file.name for file in tmp_path.iterdir()] == ["run"]
    assert checkpoints.load(path)[1]["steps"] == 12
    assert_same_result(go(library, path), go(library))


@pytest.mark.long
@both_libraries
@pytest.mark.parametrize("role", ["outer", "inner"])
@pytest.mark.parametrize("method", ["s-tfbo", "d-tfbo", "auto"])
def test_nan_from_some_step_on(library, role, method, tmp_path):
    """A term that is zero, and not a number once y has come some way."""
    function = {"outer": f, "inner": g}[role]

    def spoiled(x, y):
        return function(x, y) + 0.0 * (0.02 - (y**2).sum()) ** 0.5

    path = tmp_path / "run"
    options = {role: spoiled, "method": method, "max_steps": 400, "eval_every": 7}
    start = {"y0": array(library, [0.05, -0.05]), "x0": array(library, [0.05, 0.0])}
    first = minimize(library, **options, **start, checkpoint=path)
    # The searches of `auto` shorten a step that leads to no number.
    assert first.status in ("diverged", "stalled", "converged")[: 3 if method == "auto" else 1]
    assert first.steps > 0
    assert_one_sentence(first.message.split(". ")[0] + ".")
    for tree in (first.x, first.y, first.v):
        assert np.isfinite(np.asarray(tree)).all()
    again = minimize(library, **options, **start, checkpoint=path)
    assert (again.status, again.steps) == (first.status, first.steps)
    assert np.array_equal(again.x, first.x)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.long
@both_libraries
def test_a_clock_that_jumps_is_not_looked_at(library, tmp_path, monkeypatch):
    rng, now = np.random.default_rng(0), time.time
    whole = go(library)
    monkeypatch.setattr(time, "time", lambda: now() + rng.uniform(-1e9, 1e9))
    jumping = go(library, tmp_path / "run", max_seconds=1e6)
    assert_same_result(jumping, whole)
    assert np.all(np.diff(jumping.history["seconds"]) > 0)
    assert 0 < jumping.seconds < 600


# Two runs at once


def test_two_runs_on_one_checkpoint(tmp_path):
    path, sentences = tmp_path / "run", []

    def another(snapshot):
        if snapshot.step == 3:
            with refused(f"The checkpoint {path} is in use by another run", may_compile=True) as e:
                go("torch", path)
            sentences.append(str(e.value))

    assert_same_result(go("torch", path, callback=another), go("torch"))
    assert len(sentences) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


SECOND = """
import sys
sys.path.insert(0, sys.argv[1])
import torch, untuned
zeros = torch.zeros(2)
untuned.minimize(
    lambda x, y: ((y - 1.0) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum(), zeros, zeros,
    method="s-tfbo", checkpoint=sys.argv[2],
)
"""


@pytest.mark.process
def test_two_processes_on_one_checkpoint(tmp_path):
    path = tmp_path / "run"
    found = []

    def another(snapshot):
        if snapshot.step == 3:
            arguments = [sys.executable, "-c", SECOND, str(HERE), str(path)]
            found.append(subprocess.run(arguments, capture_output=True, text=True))

    assert_same_result(go("torch", path, callback=another), go("torch"))
    assert found[0].returncode == 1
    assert f"ValueError: The checkpoint {path} is in use by another run" in found[0].stderr


KILLED = """
import os, signal, sys
from pathlib import Path
from untuned.util import lock

with lock.held(Path(sys.argv[1])) as private:
    private.write_bytes(b"half a checkpoint")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.process
def test_what_a_killed_process_left_holds_nobody_up(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "run")])
    assert len(list(tmp_path.iterdir())) == 2  # the lock, and half a checkpoint
    assert go("torch", tmp_path / "run").status == "max_steps"
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


def test_files_beside_a_checkpoint_are_the_users(tmp_path):
    """Also links, with names that are likely for a temporary file; and a link stays one."""
    names = ("run.partial", "run.lock", "run.tmp", "target")
    for name in names:
        (tmp_path / name).write_text("mine")
    (tmp_path / "link").symlink_to("run")
    go("torch", tmp_path / "link", max_steps=3)
    assert (tmp_path / "link").is_symlink()
    assert checkpoints.load(tmp_path / "run")[1]["steps"] == 3
    assert {(tmp_path / name).read_text() for name in names} == {"mine"}


@pytest.mark.parametrize("make", [
    lambda path: path.symlink_to("target"), lambda path: path.mkdir(), os.mkfifo,
    lambda path: path.write_text("mine"),
])  # fmt: skip
def test_a_lock_file_that_is_not_ours_is_refused(make, tmp_path):
    (tmp_path / "target").write_text("mine")
    make(tmp_path / "run.untuned-lock")
    with refused("run.untuned-lock is not a lock file of untuned; move it away"):
        go("torch", tmp_path / "run")
    assert (tmp_path / "target").read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} == {"target", "run.untuned-lock"}


# Long runs


def test_a_history_is_bounded_and_the_same_however_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(result, "MOST_RECORDS", 16)
    whole = go("torch", max_steps=203, eval_every=2)
    assert whole.history.spacing == 16
    assert whole.history["step"].tolist() == [*range(16, 203, 16), 203]
    seen = []
    for stop in (7, 31, 80, 203):
        cut = go(
            "torch", tmp_path / "run", max_steps=203, eval_every=2,
            callback=lambda snapshot, at=stop: seen.append(snapshot.record["step"]) or
            snapshot.step > at,
        )  # fmt: skip
    assert_same_result(cut, whole)
    assert seen == list(range(2, 203, 2))  # a callback sees every record, kept or not
