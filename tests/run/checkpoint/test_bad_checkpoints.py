"""Checkpoints that are damaged, foreign or of another run are refused and left untouched."""

import contextlib
import os
import pickle
import socket
from functools import cache

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from refusals import (
    LIBRARIES,
    array,
    both_libraries,
    f,
    g,
    minimize,
    refused,
    rows,
)
from untuned.run.checkpoint import storage as checkpoints
from untuned.solvers import DTFBO, STFBO


@pytest.mark.parametrize("library", LIBRARIES)
def test_checkpoint_is_a_folder(library, tmp_path):
    came = f"checkpoint={str(tmp_path)!r} is a folder; "
    with refused(came, "expected the path of a file in an existing folder."):
        minimize(library, checkpoint=tmp_path)
    with refused(came):
        minimize(library, checkpoint=str(tmp_path))


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (os.mkfifo, "is no plain file"),
        (lambda path: path.symlink_to(path.name), "is a link that leads in a circle"),
    ],
)
def test_checkpoint_is_nothing_to_write_to(make, what, tmp_path):
    path = tmp_path / "run"
    make(path)
    before = path.lstat()
    with refused(f"checkpoint={str(path)!r} {what}; expected the path of a file"):
        minimize("torch", checkpoint=path)
    assert path.lstat() == before


@pytest.mark.parametrize("library", LIBRARIES)
def test_checkpoint_is_in_no_folder(library, tmp_path):
    path = tmp_path / "missing" / "run"
    came = f"checkpoint={str(path)!r} lies in {path.parent}, which is not an existing folder; "
    with refused(came, "expected the path of a file in an existing folder."):
        minimize(library, checkpoint=path)
    assert not path.parent.exists()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("checkpoint", [3, True, b"run", ["run"], object()])
def test_checkpoint_is_not_a_path(library, checkpoint):
    with refused("checkpoint", "expected the path of a file in an existing folder."):
        minimize(library, checkpoint=checkpoint)


def saved_run(library, path, **changes):
    """A run that keeps a checkpoint, the same one but for `changes`."""
    options = {
        "inner_data": rows(library, 6),
        "outer_data": rows(library, 4),
        "batch_size": (2, 2),
        "seed": 3,
        "method": STFBO(),
    }
    return minimize(library, checkpoint=path, **options | changes)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The bytes of a whole checkpoint, by library."""

    @cache
    def make(library):
        path = tmp_path_factory.mktemp(library) / "run"
        saved_run(library, path)
        return path.read_bytes()

    return make


@contextlib.contextmanager
def left_untouched(path):
    before, around = path.read_bytes(), sorted(path.parent.iterdir())
    yield
    assert path.read_bytes() == before
    assert sorted(path.parent.iterdir()) == around  # no partial file either


REMEDY = "give another path, or delete the file to start anew."


@pytest.mark.long
@both_libraries
def test_checkpoint_of_the_same_run_is_taken(library, saved, tmp_path):
    # The cases below are only worth something if nothing but their change is refused.
    path = tmp_path / "run"
    path.write_bytes(saved(library))
    assert saved_run(library, path, max_steps=5).steps == 5


def header_end(content):
    return 8 + int.from_bytes(content[:8], "little")


LENGTHS = {
    "0 bytes": lambda content: 0,
    "1 byte": lambda content: 1,
    "7 bytes": lambda content: 7,
    "8 bytes": lambda content: 8,
    "9 bytes": lambda content: 9,
    "half of the header": lambda content: header_end(content) // 2,
    "all but the last byte of the header": lambda content: header_end(content) - 1,
    "header only": lambda content: header_end(content),
    "header and 1 byte": lambda content: header_end(content) + 1,
    "half of the tensors": lambda content: (header_end(content) + len(content)) // 2,
    "all but the last byte": lambda content: len(content) - 1,
}


@both_libraries
@pytest.mark.parametrize("length", LENGTHS)
def test_truncated_checkpoint(library, length, saved, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(saved(library)[: LENGTHS[length](saved(library))])
    came = f"The checkpoint {path} is damaged or not a checkpoint of untuned ("
    with left_untouched(path), refused(came, REMEDY):
        saved_run(library, path)


@both_libraries
def test_checkpoint_with_a_byte_too_many(library, saved, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(saved(library) + b"\0")
    with left_untouched(path), refused(f"The checkpoint {path} is damaged", REMEDY):
        saved_run(library, path)


@both_libraries
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_checkpoint_with_a_flipped_byte(library, place, saved, tmp_path):
    content = bytearray(saved(library))
    first, last = header_end(content), len(content) - 1
    content[{"first": first, "middle": (first + last) // 2, "last": last}[place]] ^= 0x10
    path = tmp_path / "run"
    path.write_bytes(content)
    came = f"The checkpoint {path} is damaged: its contents do not match its digest; "
    with left_untouched(path), refused(came, REMEDY):
        saved_run(library, path)


@pytest.mark.long
def test_no_byte_of_a_checkpoint_flips_unnoticed(saved, tmp_path):
    # Header and tensors alike, one byte at a time; read directly, a run for each would take long.
    content, path = saved("torch"), tmp_path / "run"
    for place in range(0, len(content), 5):
        for mask in (0x01, 0x80):
            flipped = bytearray(content)
            flipped[place] ^= mask
            path.write_bytes(flipped)
            with refused(str(path), REMEDY):
                checkpoints.load(path)


def weights(dtype):
    return {"weight": torch.ones(3, 2, dtype=dtype)}


FOREIGN = {
    "random bytes": lambda: np.random.default_rng(0).bytes(1000),
    "zeros": lambda: bytes(1000),
    "text": lambda: b"step,loss\n1,0.5\n",
    "pickle": lambda: pickle.dumps({"x": [0.0, 0.0]}),
}


@both_libraries
@pytest.mark.parametrize("kind", FOREIGN)
def test_checkpoint_is_another_kind_of_file(library, kind, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(FOREIGN[kind]())
    came = f"The checkpoint {path} is damaged or not a checkpoint of untuned ("
    with left_untouched(path), refused(came, REMEDY):
        saved_run(library, path)


SAFETENSORS = {
    "no format": (lambda: safetensors.numpy.save({"w": np.ones(3)}), "None"),
    "of torch": (lambda: safetensors.torch.save(weights(torch.float32), {"format": "pt"}), "'pt'"),
    # Types NumPy does not have: the format must be looked at before the arrays are.
    "bfloat16": (lambda: safetensors.torch.save(weights(torch.bfloat16), {"format": "pt"}), "'pt'"),
    "float8": (lambda: safetensors.torch.save(weights(torch.float8_e4m3fn)), "None"),
    "a later format": (
        lambda: safetensors.numpy.save({"w": np.ones(3)}, {"format": "untuned checkpoint 2"}),
        "'untuned checkpoint 2'",
    ),
}


@both_libraries
@pytest.mark.parametrize("kind", SAFETENSORS)
def test_checkpoint_is_a_safetensors_file_of_another_program(library, kind, tmp_path):
    path = tmp_path / "run"
    make, came = SAFETENSORS[kind]
    path.write_bytes(make())
    came = f"The file {path} says its format is {came}; expected 'untuned checkpoint 1', so "
    with left_untouched(path), refused(came, REMEDY):
        saved_run(library, path)


@both_libraries
def test_checkpoint_cannot_be_opened(library, tmp_path, monkeypatch):
    # A socket has a name in the folder and cannot be opened as a file, not even by root.
    monkeypatch.chdir(tmp_path)  # its name must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("run")
        with refused("checkpoint='run' is no plain file; expected the path of a file"):
            saved_run(library, "run")
        assert (tmp_path / "run").is_socket()
        assert [path.name for path in tmp_path.iterdir()] == ["run"]


@both_libraries
def test_checkpoint_may_not_be_read(library, saved, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(saved(library))
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("root may read everything")
    with refused(f"The checkpoint {path} cannot be read (Permission denied); ", REMEDY):
        saved_run(library, path)
    path.chmod(0o600)
    assert path.read_bytes() == saved(library)


OTHER_RUNS = {
    "method": (lambda a: {"method": DTFBO()}, "method is 'STFBO' and this run's is 'DTFBO'"),
    "alpha0": (
        lambda a: {"method": STFBO(alpha0=2.0)},
        "alpha0 is 1.0 and this run's is 2.0",
    ),
    # A hyperparameter is what the user wrote, so it must be the same to the last digit.
    "alpha0, hardly": (lambda a: {"method": STFBO(alpha0=1.00001)}, "alpha0 is 1.0 and this"),
    "seed": (lambda a: {"seed": 4}, "seed is 3 and this run's is 4"),
    "batch_size": (
        lambda a: {"batch_size": (3, 2)},
        "batch_size is [2, 2] and this run's is [3, 2]",
    ),
    "no batches": (
        lambda a: {"batch_size": None},
        "batch_size is [2, 2] and this run's is [None, None]",
    ),
    "constraint": (
        lambda a: {"constraint": (-1.0, 1.0)},
        "constraint is 'None' and this run's is '(-1.0, 1.0)'",
    ),
    "x0": (lambda a: {"x0": a([0.0, 1e-7])}, "x0 differed from this run's; "),
    "y0": (lambda a: {"y0": a([1.0, 0.0])}, "y0 differed from this run's; "),
    "shape of x0": (lambda a: {"x0": a([[0.0, 0.0]])}, "x0 differed from this run's; "),
    "dtype": (
        lambda a: {"x0": a([0.0, 0.0], "float64"), "y0": a([0.0, 0.0], "float64")},
        "x0 differed from this run's; ",
    ),
    "tree": (
        lambda a: {
            "x0": {f"layer {k}": a([0.0, 0.0]) for k in range(40)},
            "outer": lambda x, y, batch: f(x["layer 0"], y, batch),
            "inner": lambda x, y, batch: g(x["layer 0"], y, batch),
        },
        "tree of x0 and y0 is ",
    ),
    "inner_data": (
        lambda a: {"inner_data": a(np.ones((6, 2)))},
        "inner_data differed from this run's; ",
    ),
    "outer_data": (
        lambda a: {"outer_data": a(np.ones((4, 2)))},
        "outer_data differed from this run's; ",
    ),
}


@both_libraries
@pytest.mark.parametrize("change", OTHER_RUNS)
def test_checkpoint_of_another_run(library, change, saved, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(saved(library))
    make, difference = OTHER_RUNS[change]
    changes = make(lambda *args: array(library, *args))
    came = f"The checkpoint {path} belongs to another run: its {difference}"
    with left_untouched(path), refused(came, REMEDY):
        saved_run(library, path, **changes)


@both_libraries
@pytest.mark.parametrize(
    "change",
    [
        {"inner": lambda x, y, batch: 2 * g(x, y, batch)},
        {"outer": lambda x, y, batch: f(x, y, batch) + 1.0},
        # The same value and gradient at the start, and another Hessian.
        {"inner": lambda x, y, batch: g(x, y, batch) + 0.5 * (y**2).sum()},
    ],
    ids=["2 g", "f + 1", "g + y^2/2"],
)
def test_checkpoint_of_another_function(library, change, saved, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(saved(library))
    came = (
        f"The checkpoint {path} belongs to another run: its f or g gave other values or gradients "
    )
    # What a function computes can only be told by computing it.
    with left_untouched(path), refused(came, REMEDY, may_compile=True):
        saved_run(library, path, **change)


@pytest.mark.parametrize(("library", "other"), [("jax", "torch"), ("torch", "jax")])
def test_checkpoint_of_another_library(library, other, saved, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(saved(other))
    difference = f"array library is {other!r} and this run's is {library!r}; "
    came = f"The checkpoint {path} belongs to another run: its {difference}"
    with left_untouched(path), refused(came, REMEDY):
        saved_run(library, path)
