"""How many threads BLAS and OpenMP get: as many as the work is worth and the machine has free.

A thread that has nothing to run on makes all others wait for it, and they wait by spinning. Beside
busy processes a fit of 5,000 x 50 numbers would take twice the processor time of one thread, and a
run on torch of 40,000 x 200 six times. So small work gets one thread, and larger work no more than
the cores that this process may use (affinity, the quota of its control group, OMP_NUM_THREADS) and
that are free at the time.
"""

from __future__ import annotations

import functools
import numbers
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

# Numbers that a product must go through for each thread. Reading them takes some milliseconds, the
# time for which a loaded machine lets a thread wait; to start one takes microseconds.
PER_THREAD = 2**22
PER_SECOND = 10**9  # numbers a thread reads, roughly, where only the time of a product is known

Method = TypeVar("Method", bound=Callable)

_lock = threading.Lock()
_users = 0  # BLAS has one setting for a process: the first to come sets it, the last resets it
_threads = 1  # what the first has set
_known = 0  # modules when it was last set
_before: list[Any] = []  # how to reset it


def suited_to(entries: float) -> int:
    """The threads for products that go through so many numbers."""
    worth = entries / PER_THREAD
    return 1 if worth < 2 else max(1, int(min(worth, allowed(), _free())))


def allowed(root: Path = Path("/")) -> int:
    """The cores this process may use at a time."""
    bounds = [_affinity(), *_quotas(root)]
    told = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if told.isdigit() and int(told):
        bounds.append(int(told))
    return max(1, min(bounds))


@contextmanager
def limited(entries: float) -> Iterator[None]:
    """Inside there are threads for products of that many numbers, and never more than before.

    Only the outermost of several has a say, since it knows the whole work. The setting of BLAS
    belongs to the process, and that of OpenMP to each thread that starts others.
    """
    global _users, _threads
    with _lock:
        if _users == 0:
            _threads = suited_to(entries)
        _users += 1
        _limit_blas()
    openmp = _limit("openmp", _threads)
    try:
        yield
    finally:
        openmp.restore_original_limits()
        with _lock:
            _users -= 1
            while _before and _users == 0:
                _before.pop().restore_original_limits()


def count() -> int:
    """The most threads of any library now, on which the last digits of sums depend."""
    return max((part["num_threads"] for part in _libraries(len(sys.modules)).info()), default=1)


def use(threads: int) -> None:
    """Set the threads of whoever is inside `limited`, so that a run goes on as it began."""
    _libraries(len(sys.modules)).limit(limits=min(threads, allowed()))


def _limit_blas() -> None:
    """Limit the libraries of BLAS, among them those that came with modules since the last time."""
    global _known
    if not _before or _known != len(sys.modules):
        _before.append(_limit("blas", _threads))
        _known = len(sys.modules)


def _limit(api: str, threads: int) -> Any:
    libraries = _libraries(len(sys.modules)).select(user_api=api)
    most = {part["prefix"]: min(threads, part["num_threads"]) for part in libraries.info()}
    return libraries.limit(limits=most)


@contextmanager
def limited_by_time(evaluate: Callable[[], Any]) -> Iterator[None]:
    """`limited` to what one evaluation is worth by its time on one thread, if nobody has a say."""
    seconds = 0.0
    if not _users:
        with limited(0):
            start = time.perf_counter()
            evaluate()
            seconds = time.perf_counter() - start
    with limited(seconds * PER_SECOND):
        yield


def by_rows(method: Method) -> Method:
    """A method of (self, X, ...) for which BLAS gets the threads that X is worth."""

    @functools.wraps(method)
    def called(self: Any, X: Any, *rest: Any, **named: Any) -> Any:
        size = getattr(X, "size", 0)  # a list is small; of a sparse matrix what is not zero
        with limited(float(size) if isinstance(size, numbers.Integral) else 0.0):
            return method(self, X, *rest, **named)

    return called  # type: ignore[return-value]


@functools.lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """The libraries in this process. To look for them takes milliseconds, and only another module
    brings another one: so only where the number of modules has changed."""
    # Imported here, since `import untuned` is to stay light.
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _affinity() -> int:
    if hasattr(os, "sched_getaffinity"):  # only Linux has it
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _free() -> int:
    """The machine's cores that nobody runs on now, this thread's own included."""
    try:
        running = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    except (OSError, IndexError, ValueError):  # not Linux: nobody says
        return os.cpu_count() or 1
    return max(1, (os.cpu_count() or 1) - (running - 1))


def _quotas(root: Path) -> Iterator[int]:
    """Whole cores that the control groups of this process, and those above them, grant."""
    for folder in _groups(root):
        try:
            if (folder / "cpu.max").exists():  # version 2: "quota period", or "max period"
                quota, period = (folder / "cpu.max").read_text().split()
            else:
                quota = (folder / "cpu.cfs_quota_us").read_text()
                period = (folder / "cpu.cfs_period_us").read_text()
            if int(quota) > 0:  # -1 stands for none in version 1
                yield int(quota) // int(period)
        except (OSError, ValueError, ZeroDivisionError):  # no such file, or "max"
            continue


def _groups(root: Path) -> Iterator[Path]:
    """The folders of the control groups that count processor time, from the process's own up."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    mounted = root / "sys/fs/cgroup"
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        for top in (mounted / controllers, mounted / "cpu") if controllers else (mounted,):
            # Inside a container the path may be the host's, which is not there: the top is.
            for part in (Path(path.lstrip("/")), *Path(path.lstrip("/")).parents):
                yield top / part
