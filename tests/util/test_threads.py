"""How many threads BLAS gets: quotas read from made-up control groups, and who sets and resets."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_iris
from threadpoolctl import ThreadpoolController, threadpool_limits

import untuned
from untuned.estimators import (
    BilevelLogisticRegression,
    BilevelRidge,
    CoresetSelector,
    LabelCleaner,
)
from untuned.util import threads

LARGE = 100 * threads.PER_THREAD


@pytest.fixture
def many_cores(monkeypatch):
    """A machine of 16 cores that nobody uses, and no word from the user."""
    monkeypatch.setattr(threads, "_affinity", lambda: 16)
    monkeypatch.setattr(threads, "_free", lambda: 16)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def blas_threads() -> set[int]:
    return {part["num_threads"] for part in ThreadpoolController().select(user_api="blas").info()}


def machine(root: Path, groups: str, **files: str) -> Path:
    """A file system with these control groups; a double underscore is a slash, a bar a dot."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(groups)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.usefixtures("many_cores")
class TestQuotas:
    def test_version_2_of_a_container(self, tmp_path):
        assert threads.allowed(machine(tmp_path, "0::/\n", cpuDOTmax="300000 100000\n")) == 3

    def test_the_strictest_of_nested_groups_counts(self, tmp_path):
        files = {"a__cpuDOTmax": "200000 100000", "a__b__cpuDOTmax": "max 100000"}
        assert threads.allowed(machine(tmp_path, "0::/a/b\n", **files)) == 2

    @pytest.mark.parametrize("folder", ["cpu", "cpu,cpuacct"])
    def test_version_1(self, tmp_path, folder):
        files = {
            f"{folder}__cpuDOTcfs_quota_us": "450000",
            f"{folder}__cpuDOTcfs_period_us": "100000",
        }
        groups = "4:memory:/docker/x\n3:cpu,cpuacct:/docker/x\n"
        assert threads.allowed(machine(tmp_path, groups, **files)) == 4

    def test_less_than_a_core_is_one_thread(self, tmp_path):
        assert threads.allowed(machine(tmp_path, "0::/\n", cpuDOTmax="50000 100000")) == 1

    @pytest.mark.parametrize("text", ["max 100000", "", "rubbish here", "100000 0"])
    def test_no_quota_is_none(self, tmp_path, text):
        assert threads.allowed(machine(tmp_path, "0::/\n", cpuDOTmax=text)) == 16

    def test_version_1_without_a_quota(self, tmp_path):
        files = {"cpu__cpuDOTcfs_quota_us": "-1", "cpu__cpuDOTcfs_period_us": "100000"}
        assert threads.allowed(machine(tmp_path, "3:cpu:/\n", **files)) == 16

    def test_no_control_groups_at_all(self, tmp_path):
        assert threads.allowed(tmp_path) == 16

    @pytest.mark.parametrize(("told", "most"), [("4", 4), ("2,1", 2), ("0", 16), ("many", 16)])
    def test_the_user_has_a_word(self, tmp_path, monkeypatch, told, most):
        monkeypatch.setenv("OMP_NUM_THREADS", told)
        assert threads.allowed(tmp_path) == most


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux has an affinity")
def test_affinity_bounds(monkeypatch, tmp_path):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert threads.allowed(tmp_path) == len(os.sched_getaffinity(0))


@pytest.mark.usefixtures("many_cores")
def test_small_work_gets_one_and_large_work_what_is_there(monkeypatch):
    monkeypatch.setattr(threads, "_quotas", lambda root: iter(()))
    assert threads.suited_to(8000 * 86) == 1
    assert threads.suited_to(3 * threads.PER_THREAD) == 3
    assert threads.suited_to(LARGE) == 16


@pytest.mark.usefixtures("many_cores")
def test_busy_neighbours_leave_one(monkeypatch):
    monkeypatch.setattr(threads, "_free", lambda: 1)
    assert threads.suited_to(LARGE) == 1


def test_set_inside_and_as_before_outside():
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with threads.limited(0):
            assert blas_threads() == {1}
            with threads.limited(LARGE):  # only the outermost has a say
                assert blas_threads() == {1}
        assert blas_threads() == before


class Library:
    """One that may be loaded later: stands for what threadpoolctl finds."""

    def __init__(self, threads):
        self.threads = threads

    def select(self, user_api):
        return self if user_api == "blas" else ThreadpoolController().select(user_api=user_api)

    def info(self):
        return [{"prefix": "later", "num_threads": self.threads}]

    def limit(self, limits):
        before, self.threads = self.threads, limits["later"]
        return SimpleNamespace(restore_original_limits=lambda: setattr(self, "threads", before))


def test_a_library_that_comes_with_a_new_module_is_limited_too(monkeypatch):
    """It is looked for where modules have come, and gets what the outermost has said."""
    later, found = Library(4), []
    with threadpool_limits(2, user_api="blas"), threads.limited(0):
        monkeypatch.setattr(threads, "_libraries", lambda modules: found.append(modules) or later)
        monkeypatch.setitem(sys.modules, "brought_a_library", threads)
        with threads.limited(LARGE):
            assert later.threads == 1
        assert later.threads == 1  # as the outermost goes on
    assert later.threads == 4
    assert set(found) == {len(sys.modules)}


def test_openmp_is_limited_in_the_thread_that_asks():
    def own():
        return {
            part["num_threads"] for part in ThreadpoolController().select(user_api="openmp").info()
        }

    with threadpool_limits(2, user_api="openmp"):
        before, others = own(), []
        with threads.limited(0), ThreadPoolExecutor(1) as pool:
            assert own() == {1}

            def another():
                with threadpool_limits(2, user_api="openmp"), threads.limited(0):
                    others.append(own())
                others.append(own())

            pool.submit(another).result()
        assert own() == before == {2}
        assert others[0] == {1}


@pytest.mark.parametrize("began", [1, 2])
def test_a_run_goes_on_with_the_threads_it_began_with(began, monkeypatch, tmp_path):
    """Sums of many numbers have other last digits with other threads."""
    monkeypatch.setattr(threads, "allowed", lambda: 2)
    torch = pytest.importorskip("torch")
    rows, seen = torch.randn(300, 10**4, generator=torch.Generator().manual_seed(0)), []

    def inner(x, y, batch):
        seen.append(torch.get_num_threads())
        return ((y - x) ** 2).sum() + 1e-6 * batch.sum() * y.sum()

    def go(free, steps, path=None):
        monkeypatch.setattr(threads, "_free", lambda: free)
        zeros = torch.zeros(2)
        return untuned.minimize(
            lambda x, y: ((y - 1.0) ** 2).sum(), inner, zeros, zeros, inner_data=rows,
            method="s-tfbo", max_steps=steps, checkpoint=path,
        ).x  # fmt: skip

    with threadpool_limits(2):
        whole = go(began, 20)
        assert seen[-1] == began
        go(began, 10, tmp_path / "run")
        assert torch.equal(go(3 - began, 20, tmp_path / "run"), whole)
        assert seen[-1] == began
        assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("many_cores")
def test_never_more_than_before():
    with threadpool_limits(1, user_api="blas"), threads.limited(LARGE):
        assert blas_threads() == {1}


def test_the_last_to_leave_resets():
    with threadpool_limits(2, user_api="blas"):
        before, first, second = blas_threads(), threads.limited(0), threads.limited(0)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert blas_threads() == {1}
        second.__exit__(None, None, None)
        assert blas_threads() == before


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "calls"),
    [
        (BilevelLogisticRegression(max_steps=2, random_state=0), ["predict", "predict_proba"]),
        (BilevelRidge(max_steps=2, random_state=0), ["predict"]),
        (LabelCleaner(max_steps=2, random_state=0), ["predict", "predict_proba"]),
        (CoresetSelector(20, strategy="herding", random_state=0), []),
    ],
    ids=lambda part: type(part).__name__,
)
def test_estimators_fit_and_predict_small_tables_on_one(monkeypatch, model, calls):
    given, was = [], threads.suited_to
    monkeypatch.setattr(threads, "suited_to", lambda n: given.append(was(n)) or given[-1])
    X, y = load_iris(return_X_y=True)
    model.fit(X, y)
    for name in calls:
        getattr(model, name)(X)
    assert given == [1] * (1 + len(calls))


def test_minimize_on_numpy():
    seen = []

    class Quadratic:
        """|y - x|^2 / 2 with its derivatives."""

        def __call__(self, x, y):
            return 0.5 * float((y - x) @ (y - x))

        def value_and_grads(self, x, y):
            return self(x, y), x - y, y - x

        def grad_y(self, x, y):
            seen.append(blas_threads())
            return y - x

        def products(self, x, y):
            return lambda v, wrt: {"x": -v, "y": v, "xy": (-v, v)}[wrt]

    with threadpool_limits(2, user_api="blas"):
        untuned.minimize(Quadratic(), Quadratic(), np.ones(3), np.zeros(3), max_steps=3)
    assert seen
    assert set.union(*seen) == {1}
