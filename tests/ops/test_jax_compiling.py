"""Programs on disk: found by the next process, refused where others can write, and none of the
user's; and options of a compiler, left out where the XLA installed does not have them."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import untuned
from untuned.ops import jax_compiling

SCRIPT = """
import jax, jax.numpy as jnp, sys, untuned
from jax._src import monitoring
hits = []
monitoring.register_event_listener(lambda event, **_: hits.append(event))
# NumPy has no erf, so there is something to compile.
f = lambda x, y: ((y - jax.lax.erf(x)) ** 2).sum()
g = lambda x, y: ((y - x) ** 2).sum() + 0 * jax.lax.erf(y).sum()
untuned.minimize(f, g, jnp.zeros(2), jnp.zeros(2), method=sys.argv[1], max_steps=3)
print(sum("cache_hits" in event for event in hits), jax.config.jax_compilation_cache_dir)
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("UNTUNED_CACHE", "1")
    jax_compiling.folder.cache_clear()
    yield tmp_path
    jax_compiling.folder.cache_clear()


def run(what):
    script = SCRIPT if what == "auto" else what
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, what], capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    hits, setting = done.stdout.split()
    return int(hits), setting


@pytest.mark.process
def test_the_next_process_finds_them(home):
    assert run("auto") == (0, "None")  # and JAX's own setting is as before
    files = sorted(home.rglob("*-cache"))
    assert files
    # A killed process leaves half a file: compiled anew, without a word, and dropped.
    files[0].write_bytes(files[0].read_bytes()[:50])
    assert 0 < run("auto")[0] < len(files)
    assert not files[0].exists()


@pytest.mark.process
def test_compiled_ahead_of_time_too(home):
    compile_twice = """
import jax, jax.numpy as jnp
from jax._src import monitoring
from untuned.ops import jax as ops
hits = []
monitoring.register_event_listener(lambda event, **_: hits.append(event))
x = jnp.ones(3)
ops.compile(lambda x: x + 1, x)
jax.clear_caches()
ops.compile(lambda x: x + 1, x)
print(sum("cache_hits" in event for event in hits), "-")
"""
    assert run(compile_twice)[0] == 1


@pytest.mark.parametrize("setting", ["UNTUNED_CACHE", "jax"])
def test_off_where_the_user_says_so(home, monkeypatch, setting):
    if setting == "jax":
        before = jax.config.jax_compilation_cache_dir
        jax.config.update("jax_compilation_cache_dir", str(home / "theirs"))
    else:
        monkeypatch.setenv("UNTUNED_CACHE", "0")
    try:
        jax_compiling.folder.cache_clear()
        was = jax.config.jax_compilation_cache_dir
        with jax_compiling.used():
            assert jax.config.jax_compilation_cache_dir == was
    finally:
        if setting == "jax":
            jax.config.update("jax_compilation_cache_dir", before)


def test_settings_are_as_before_even_after_an_error(home):
    def fail():
        with jax_compiling.used():
            assert jax.config.jax_compilation_cache_dir == str(jax_compiling.folder())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert jax.config.jax_compilation_cache_dir is None


def test_refused_where_others_can_write(home):
    path = jax_compiling.folder()
    assert path.stat().st_mode & 0o077 == 0
    path.chmod(0o777)
    jax_compiling.folder.cache_clear()
    assert jax_compiling.folder() is None


def test_a_folder_that_cannot_be_made_is_no_error(home, monkeypatch):
    (home / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "file"))
    assert jax_compiling.folder() is None


def test_the_longest_unused_are_dropped(home, monkeypatch):
    path = jax_compiling.folder()
    for k in range(5):
        (path / f"p{k}-cache").write_bytes(bytes(100))
        os.utime(path / f"p{k}-cache", (k, k))
    monkeypatch.setattr(jax_compiling, "MOST_BYTES", 250)
    jax_compiling._prune(path)
    assert sorted(file.name for file in path.iterdir()) == ["p3-cache", "p4-cache"]


@pytest.fixture
def other_xla(monkeypatch):
    """Every effort has one option that no XLA knows, beside those of today."""
    unknown = {effort: {"xla_gone": True} | each for effort, each in jax_compiling.EFFORTS.items()}
    monkeypatch.setattr(jax_compiling, "EFFORTS", unknown)
    jax_compiling.of_effort.cache_clear()
    yield
    jax_compiling.of_effort.cache_clear()


@pytest.mark.parametrize("method", ["auto", "s-tfbo"])
def test_a_run_does_without_options_that_are_gone(other_xla, method):
    inner = lambda x, y: jnp.sum((y - x) ** 2)
    outer = lambda x, y: jnp.sum((y - 1.0) ** 2)
    start = np.zeros(2, np.float32)
    result = untuned.minimize(outer, inner, start, start, method=method, max_steps=3)
    assert result.steps == 3 or result.status == "converged"


def test_known_options_are_kept(other_xla):
    assert jax_compiling.of_effort("least")["xla_backend_optimization_level"] == 0
    assert "xla_gone" not in jax_compiling.of_effort("least")
