"""How much memory there is, so that a file too large is refused before it is read."""

from __future__ import annotations

import os
from pathlib import Path

# The most that reading and preparing was seen to take, as a multiple of the table: 5.4 times for
# the whole Covtype as CSV, 3.1 for MNIST. A fit comes after and takes less, about 1.5 times.
TIMES_THE_TABLE = 6


def available() -> int:
    """Bytes this process may still take: of the machine, and of the container it runs in."""
    return min(_of_machine(), _of_container())


def _of_machine() -> int:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kilobytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
        return int(kilobytes) * 1024
    except (OSError, StopIteration):  # not Linux: all there is, since what is free is not known
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_container(root: Path = Path("/sys/fs/cgroup")) -> int:
    """What the control group leaves; a number beyond any machine where there is no limit."""
    left = [2**62]
    for folder, limit, used, kept in (
        (root, "memory.max", "memory.current", "inactive_file"),  # version 2
        (root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            most, now = (int((folder / name).read_text()) for name in (limit, used))
        except (OSError, ValueError):  # no such file, or "max"
            continue
        left.append(most - now + _kept_files(folder / "memory.stat", kept))
    return min(left)


def _kept_files(statistics: Path, name: str) -> int:
    """Bytes of files read before, which count as used and are given up when memory is asked for."""
    try:
        lines = (line.split() for line in statistics.read_text().splitlines())
        return next(int(count) for what, count in lines if what == name)
    except (OSError, ValueError, StopIteration):
        return 0


def check(path: Path, table_bytes: float) -> None:
    """Refuse a table that would not fit, before it is read."""
    needed, there = TIMES_THE_TABLE * table_bytes, available()
    if needed > there:
        raise ValueError(
            f"{path} would need about {_gigabytes(needed)} of memory and {_gigabytes(there)} are "
            "free; give a sample of its rows, fewer columns, or a larger machine."
        )


def _gigabytes(count: float) -> str:
    return f"{count / 2**30:,.1f} GB"
