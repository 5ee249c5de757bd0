"""How JAX's programs are compiled: what they cost, with how much effort, and kept on disk.

The cache is JAX's own, in the user's cache folder. It is on for what this package compiles, unless
the user has a cache (JAX's setting `jax_compilation_cache_dir`, or JAX_COMPILATION_CACHE_DIR) or
sets UNTUNED_CACHE=0. What a program depends on (its text, options, the version of the compiler) is
in JAX's key; the kind of processor, which is not, is in the folder's name.
"""

from __future__ import annotations

import glob
import hashlib
import math
import os
import platform
import stat
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import jax
from jax import lax
from jax.experimental.compilation_cache import compilation_cache
from jax.extend.core import ClosedJaxpr, Jaxpr

from untuned.ops import Tree

FAULT = "persistent compilation cache entry"  # so JAX's warnings of files that fail begin
MOST_BYTES = 2**28  # kept from one process to the next; a program takes 20 to 200 kB

# XLA's older code generator takes half as long; its products are as quick and its gradients up to
# twice as slow. Without the optimizer code is three times slower, and there in a fifth of the time.
OLDER: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False}
EFFORTS = {"full": {}, "half": OLDER, "least": OLDER | {"xla_backend_optimization_level": 0}}


@contextmanager
def used() -> Iterator[None]:
    """Inside, what is compiled is looked for on disk, and left there.

    Outside JAX's settings are as before, so that a user's own programs are none of our business.
    """
    path = folder()
    if path is None or _get("jax_compilation_cache_dir"):
        yield
        return
    settings = {
        "jax_compilation_cache_dir": str(path),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: _get(name) for name in settings}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            _set(settings)
            yield
        finally:
            _set(before)
    for warning in caught:
        if FAULT in str(warning.message):
            _mend(path, str(warning.message))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


def _mend(path: Path, message: str) -> None:
    """Drop what cannot be read, such as the half that a killed process has written.

    JAX compiles anew in this case, and does not replace the file; it names the function in quotes.
    """
    name = message.partition("'")[2].partition("'")[0]
    for entry in path.glob(f"{glob.escape(name)}-*") if name else ():
        entry.unlink(missing_ok=True)


def _get(name: str) -> Any:
    return getattr(jax.config, name)  # which has no types


def _set(settings: dict) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()  # or JAX would stay with the folder it has seen first


@cache
def folder() -> Path | None:
    """Where programs are kept; None where they are not, as nobody else may be able to write there:
    a program is code that runs."""
    if os.environ.get("UNTUNED_CACHE") == "0":
        return None
    path = _of_user() / "untuned" / f"jax-{jax.__version__}-{_processor()}"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
        if hasattr(os, "getuid") and status.st_uid != os.getuid():
            return None
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or not os.access(path, os.W_OK):
            return None
        _prune(path)
    except OSError:  # a home that is not there, or full, or read-only
        return None
    return path


def _of_user() -> Path:
    given = os.environ.get("XDG_CACHE_HOME")
    if given and Path(given).is_absolute():
        return Path(given)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")


def _processor() -> str:
    """What tells processors apart that cannot run each other's programs: their abilities."""
    about = platform.machine()
    with suppress(OSError):  # only Linux has it
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        about += "".join(sorted({line for line in lines if line.startswith(("flags", "Features"))}))
    return hashlib.sha256(about.encode()).hexdigest()[:12]


def _prune(path: Path) -> None:
    """Drop the longest unused programs once all of them take too much room."""
    files = [(entry.stat(), entry) for entry in path.iterdir() if entry.is_file()]
    files.sort(key=lambda pair: max(pair[0].st_atime, pair[0].st_mtime), reverse=True)
    total = 0
    for status, entry in files:
        total += status.st_size
        if total > MOST_BYTES:
            entry.unlink(missing_ok=True)  # another process may have been quicker


@cache
def of_effort(effort: str) -> dict[str, Any]:
    """The options of an effort, as far as the XLA installed has them: they come and go."""
    return {name: value for name, value in EFFORTS[effort].items() if _is_known(name, value)}


@cache
def _is_known(name: str, value: Any) -> bool:
    if jax.default_backend() != "cpu":
        return False
    try:
        jax.jit(lambda: 0).lower().compile({name: value})
    except jax.errors.JaxRuntimeError as error:
        if "compile option" not in str(error):
            raise
        return False
    return True


def operations(function: Callable, *arguments: Tree) -> float:
    """How many floating-point operations a call takes; nothing is compiled for the answer.

    XLA counts a loop's body once, so a count is that for each turn; where nobody knows how many
    turns there are, or what a call into Python takes, it is infinite.
    """
    traced = jax.jit(function).trace(*arguments)
    counted: Any = traced.lower().cost_analysis() or {}
    turns = _turns(traced.jaxpr.jaxpr)
    return turns if math.isinf(turns) else turns * float(counted.get("flops", 0.0))


def _turns(jaxpr: Any) -> float:
    """How often the operations inside the deepest loops are done, at most."""
    most = 1.0
    for equation in jaxpr.eqns:
        name = equation.primitive.name
        if name == "while" or name.endswith("callback") or name == "ffi_call":
            return math.inf
        inside = max(map(_turns, _programs_in(equation)), default=1.0)
        most = max(most, inside * (equation.params["length"] if name == "scan" else 1))
    return most


def counted(jaxpr: Any) -> int:
    """Two operations for each term of a product of matrices, and one for each number that comes
    out of anything else; a loop of unknown length counts as one turn."""
    count = 0
    for equation in jaxpr.eqns:
        within = _programs_in(equation)
        if within:
            times = equation.params.get("length", 1)  # of a scan
            count += times * sum(map(counted, within))
            continue
        terms = 1
        if equation.primitive is lax.dot_general_p:
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            terms = 2 * math.prod(shape[axis] for axis in contracted)
        elif equation.primitive is lax.conv_general_dilated_p:
            terms = 2 * math.prod(equation.invars[1].aval.shape[1:])
        count += terms * sum(math.prod(out.aval.shape) for out in equation.outvars)
    return count


def _programs_in(equation: Any) -> list[Any]:
    """What an operation holds, such as the body of a loop or the branches of a condition."""
    given = jax.tree.leaves(list(equation.params.values()), is_leaf=_is_program)
    return [getattr(part, "jaxpr", part) for part in given if _is_program(part)]


def _is_program(part: Any) -> bool:
    return isinstance(part, Jaxpr | ClosedJaxpr)
