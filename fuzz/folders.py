"""What may stand where a command or a checkpoint writes: `python fuzz/folders.py`.

Foreign files, folders, links, FIFOs and locks under every name near `--out` or a checkpoint's path.
What was not written by untuned is there afterwards as it was, and what is said is one sentence.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import tables
import untuned
from hunt import FoundError, expect, first_line, main, refusal

SLOWEST = 60
LOCK, PRIVATE = ".untuned-lock", ".untuned-0123456789abcdef"
NEAR = ["{}.partial", "{}.old", "{}.tmp", "{}" + LOCK, PRIVATE, "{}.partial.lock", ".{}"]
OURS = ["result.json", "report.html", "cleaned.csv", "suspects.csv", "model.skops", "written.json"]


def _folder(place: Path, treasure: Path, rng: np.random.Generator) -> None:
    place.mkdir()
    (place / str(rng.choice(["thesis.txt", *OURS]))).write_text("mine")


KINDS: dict[str, Callable[[Path, Path, np.random.Generator], object]] = {
    "file": lambda place, treasure, rng: place.write_text(
        str(rng.choice(["mine", PRIVATE, "{}", '{"written": ["a"]}']))
    ),
    "folder": _folder,
    "empty folder": lambda place, treasure, rng: place.mkdir(),
    "link to a file": lambda place, treasure, rng: place.symlink_to(treasure / "gold.txt"),
    "link to a folder": lambda place, treasure, rng: place.symlink_to(treasure),
    "link to nothing": lambda place, treasure, rng: place.symlink_to(place.parent / "nothing"),
    "link to itself": lambda place, treasure, rng: place.symlink_to(place.name),
    "fifo": lambda place, treasure, rng: os.mkfifo(place),
    "hard link": lambda place, treasure, rng: os.link(treasure / "gold.txt", place),
}


def made(place: Path, kind: str, rng: np.random.Generator, treasure: Path) -> None:
    """Put something of the user's in a place."""
    KINDS[kind](place, treasure, rng)


def check(seed: int) -> None:
    rng = np.random.default_rng([seed, 5])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "treasure").mkdir()
        (folder / "treasure" / "gold.txt").write_text("mine")
        about = _checkpoint if rng.random() < 0.4 else _command
        about(folder, rng)


def _surround(folder: Path, target: str, rng: np.random.Generator) -> str:
    """Things near the target, in words."""
    told = []
    for near in NEAR:
        if rng.random() < 0.25:
            kind = str(rng.choice(list(KINDS)))
            made(folder / near.format(target), kind, rng, folder / "treasure")
            told.append(f"{near.format(target)} is a {kind}")
    return ", ".join(told)


def _compare(folder: Path, before: dict, new: set[str], told: str) -> None:
    after = tables.contents(folder)
    for path, what in before.items():
        expect(path in after, f"{path} is gone | {told}")
        expect(after[path] == what, f"{path} has changed | {told}")
    strange = {path.parts[0] for path in after if path not in before} - new
    expect(not strange, f"{strange} is new | {told}")


def _command(folder: Path, rng: np.random.Generator) -> None:
    """A command whose --out, or what is near it, is the user's."""
    rows = "\n".join(f"{k % 7},{k % 5},{'yes' if k % 2 else 'no'}" for k in range(30))
    (folder / "train.csv").write_text(f"a,b,label\n{rows}\n")
    command = str(rng.choice(["clean", "regularize", "coreset", "report"]))
    out, deep = folder / "out", rng.random() < 0.15
    arguments = [command, "train.csv", "--label", "label", "--out", "out/deep" if deep else "out"]
    arguments += ["--size", "6"] if command == "coreset" else []
    is_ours = rng.random() < 0.5 or command == "report"
    told = []
    if is_ours:
        tables.command(["clean", *arguments[1:4], "--out", "out"], folder, True)
    replaced = set(out.rglob("*"))
    if not is_ours:
        kind = str(rng.choice(list(KINDS)))
        made(out, kind, rng, folder / "treasure")
        told.append(f"out is a {kind}")
    elif rng.random() < 0.7:
        kind, inside = str(rng.choice(list(KINDS))), str(rng.choice([*OURS, "notes.txt"]))
        where = out / inside
        if os.path.lexists(where):
            where.unlink() if rng.random() < 0.8 else None
        if not os.path.lexists(where):
            made(where, kind, rng, folder / "treasure")
            replaced.discard(where)
            told.append(f"{inside} in it is a {kind}")
    told.append(_surround(folder, "out", rng))
    if command == "report":
        arguments = ["report", "out", *(["--out", "page"] if rng.random() < 0.5 else [])]
        if rng.random() < 0.5:
            made(folder / "page", str(rng.choice(list(KINDS))), rng, folder / "treasure")
    elif rng.random() < 0.7:
        arguments.append("--overwrite")
    # What our own first run wrote may go; all else is the user's.
    mine = {path.relative_to(folder) for path in replaced}
    before = {path: what for path, what in tables.contents(folder).items() if path not in mine}
    if is_ours or (out.is_dir() and not any(out.iterdir())):
        before.pop(Path("out"), None)
    words = f"{' '.join(arguments)}: {'; '.join(told)}"
    try:
        code, err = tables.command(arguments, folder, True)
    except Exception as error:
        raise FoundError(
            f"raw {type(error).__name__}: {first_line(str(error))} | {words}"
        ) from error
    one = err.startswith("untuned: ") and err.count("\n") == 1 and err.rstrip().endswith(".")
    expect(code == 0 or one, f"exit {code}: {first_line(err)} | {words}")
    new = {"out"} if is_ours or code == 0 else set()
    # A folder asked for in a link's target is made there.
    new |= {"page", "nothing"} if code == 0 else set()
    _compare(folder, before, new | ({"treasure"} if code == 0 and deep else set()), words)


def _checkpoint(folder: Path, rng: np.random.Generator) -> None:
    """A run whose checkpoint's place, or what is near it, is the user's."""
    path, kind = folder / "run", str(rng.choice([*KINDS, "free", "free"]))
    if kind != "free":
        made(path, kind, rng, folder / "treasure")
    told = f"run is {kind}; {_surround(folder, 'run', rng)}"
    before = tables.contents(folder)
    x, y = torch.zeros(2), torch.zeros(2)
    try:
        untuned.minimize(
            lambda x, y: ((y - 1) ** 2).sum(), lambda x, y: ((y - x) ** 2).sum(), x, y,
            method="s-tfbo", max_steps=6, eval_every=2, checkpoint=path,
        )  # fmt: skip
        new = {"run", "nothing"}
    except Exception as error:
        new = set()
        try:
            refusal(error)
        except FoundError as found:
            raise FoundError(f"{found} | {told}") from error
    _compare(folder, before, new, told)


if __name__ == "__main__":
    main(check, SLOWEST)
