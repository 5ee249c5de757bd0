"""What the generators share: seeds, clocks, and findings that say how they are repeated.

A generator is a script with a function `check(seed)` that raises `FoundError` where something is
wrong. Everything that it draws comes from the seed, so `python fuzz/NAME.py --seed 7` repeats a
finding.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(threads, "1")

REFUSALS: Counter[str] = Counter()  # sentences that were met, printed at the end to be read


class FoundError(AssertionError):
    """What a generator found, in one line."""


class TooLongError(BaseException):
    """Not an Exception, so that no library takes it for one of its own."""


def expect(is_right: bool, complaint: str) -> None:
    if not is_right:
        raise FoundError(complaint)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise TooLongError where the block takes longer by the wall clock."""

    def late(*_: object) -> None:
        raise TooLongError

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def refusal(error: Exception) -> str:
    """The sentence of an error that the package itself raises; a raw one is a finding."""
    frames = traceback.extract_tb(error.__traceback__)
    where = next(frame for frame in reversed(frames))
    text = str(error)
    ours = f"{os.sep}untuned{os.sep}" in where.filename and isinstance(
        error, ValueError | TypeError
    )
    if not ours:
        last = next((frame for frame in reversed(frames) if "/untuned/" in frame.filename), where)
        place = f"{Path(last.filename).name}:{last.lineno}"
        raise FoundError(f"raw {type(error).__name__} at {place}: {first_line(text)}") from error
    if "\n" in text or len(text) > 600 or not text.rstrip().endswith("."):
        raise FoundError(f"not one sentence: {first_line(text)}") from error
    REFUSALS[text[:90]] += 1
    return text


def first_line(text: str) -> str:
    return (text.strip().splitlines() or ["(no words)"])[0][:400]


def main(check: Callable[[int], None], slowest: float) -> None:
    """Check seeds until their number or the time is over; exit code 1 if one found something."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--seed", type=int, help="only this one, with its traceback")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=50, help="how many seeds")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no seed after these")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    if asked.seed is not None:
        with at_most(slowest):
            check(asked.seed)
        print("nothing found")
        return
    script, begun, found, made = os.path.relpath(sys.argv[0]), time.monotonic(), 0, 0
    for seed in range(asked.start, asked.start + asked.count):
        if time.monotonic() - begun > asked.seconds:
            break
        complaint = _complaint(check, seed, slowest)
        made += 1
        if complaint:
            found += 1
            print(f"{complaint}   [python {script} --seed {seed}]", flush=True)
    for sentence, count in REFUSALS.most_common(12):
        print(f"   refused {count} times: {sentence}")
    print(f"{Path(script).stem}: {made} seeds from {asked.start}, {found} findings", flush=True)
    sys.exit(1 if found else 0)


def _complaint(check: Callable[[int], None], seed: int, slowest: float) -> str:
    """What is wrong with a seed, in one line; empty where nothing is."""
    try:
        with at_most(slowest):
            check(seed)
    except FoundError as error:
        return first_line(str(error))
    except TooLongError:
        return f"took more than {slowest:g} seconds"
    except (Exception, SystemExit) as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        return f"{type(error).__name__} at {place}: {first_line(str(error))}"
    return ""
