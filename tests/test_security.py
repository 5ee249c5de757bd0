"""Nothing runs from a file: no pickles, no scripts in pages, no paths out of a folder."""

import ast
import json
import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from skops import io as skops

import standins
import untuned
import untuned_paper
from pages import job, opened
from refusals import assert_one_sentence
from untuned.commands import saved_model
from untuned.commands.clean import clean
from untuned.commands.coreset import coreset
from untuned.commands.regularize import regularize
from untuned.report import run_page
from untuned.run.checkpoint import storage
from untuned.tables import files
from untuned_paper import datasets
from untuned_paper.comparison import records
from untuned_paper.comparison.records import ComparedRun

SOURCES = [Path(package.__file__).parent for package in (untuned, untuned_paper)]

# Modules that run what a file says, or that fetch; and names that do so wherever they come from.
RUNS_FILES = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "runpy", "code"}
FETCHES = {"urllib", "http", "requests", "httpx", "ftplib", "socket", "pooch", "aiohttp"}
CALLS = {"eval", "exec", "read_pickle", "to_pickle", "unsafe_load", "system", "popen", "urlopen"}


def trees():
    for source in SOURCES:
        for path in source.rglob("*.py"):
            yield path.relative_to(source), ast.parse(path.read_text(encoding="utf-8"))


def imported(node):
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    if isinstance(node, ast.ImportFrom) and node.module:
        return {node.module.partition(".")[0]}
    return set()


@pytest.mark.long
def test_no_module_that_runs_files_or_fetches_is_imported():
    for path, tree in trees():
        for node in ast.walk(tree):
            assert not imported(node) & (RUNS_FILES | FETCHES), (path, node.lineno)


@pytest.mark.long
def test_no_call_runs_what_a_file_says():
    for path, tree in trees():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            owner = getattr(getattr(node.func, "value", None), "id", "")
            words = {word.arg: getattr(word.value, "value", None) for word in node.keywords}
            is_of_module = name == "eval" and not node.args  # torch's, for dropout
            assert name not in CALLS or is_of_module, (path, node.lineno)
            assert "shell" not in words, (path, node.lineno)
            if name == "load" and owner in ("np", "numpy"):
                assert not words.get("allow_pickle"), (path, node.lineno)
            assert not (name == "load" and owner in ("torch", "yaml", "io", "skops")), path


@pytest.mark.long
def test_what_is_downloaded_has_a_checksum():
    """Only through scikit-learn, whose fetchers compare digests and raise where they differ."""
    fetchers = {
        node.attr if isinstance(node, ast.Attribute) else node.name
        for _, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute | ast.alias)
        and (node.attr if isinstance(node, ast.Attribute) else node.name).startswith("fetch_")
    }
    assert fetchers == {"fetch_covtype", "fetch_openml"}
    from sklearn.datasets import _covtype

    assert len(_covtype.ARCHIVE.checksum) == 64


def test_a_changed_download_is_refused(monkeypatch, tmp_path):
    """A server that sends other bytes than it says: scikit-learn refuses, and so do we."""
    from sklearn.datasets import _base, _covtype

    def retrieve(url, target):
        Path(target).write_bytes(b"not what was promised")

    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    monkeypatch.delenv("UNTUNED_DATA", raising=False)
    monkeypatch.setattr(_base, "urlretrieve", retrieve)
    assert _covtype.ARCHIVE.checksum
    with pytest.raises(ValueError, match="could not be downloaded") as caught:
        datasets.load("covtype")
    assert_one_sentence(str(caught.value))


class Malicious:
    """Unpickling it would make a file."""

    def __init__(self, mark):
        self.mark = str(mark)

    def __reduce__(self):
        return os.mkdir, (self.mark,)


@pytest.fixture
def trap(tmp_path):
    """A pickle that makes a folder when it is loaded; at the end it must not be there."""
    mark = tmp_path / "it ran"
    content = pickle.dumps(Malicious(mark))
    yield content
    assert not mark.exists()
    pickle.loads(content)
    assert mark.exists()  # the trap works


RUN = ComparedRun("digits-cleaning", "soba", "tuned", 0, None, 64, 1.0, True)


def test_no_reader_unpickles(trap, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(trap)
    for read in (
        storage.load,
        files.read,
        lambda path: datasets._read(path, ("X",)),
        lambda path: untuned.minimize(
            lambda x, y: (y**2).sum(), lambda x, y: ((y - x) ** 2).sum(), np.ones(2), np.ones(2),
            checkpoint=path,
        ),
    ):  # fmt: skip
        with pytest.raises(ValueError) as caught:
            read(path)
        assert_one_sentence(str(caught.value))
    records.path(tmp_path, RUN).write_bytes(trap)
    assert records.read(tmp_path, RUN) is None


def test_a_pickle_inside_npz_stays_one(trap, tmp_path):
    path = tmp_path / "covtype.npz"
    np.savez(path, X=np.array([Malicious(tmp_path / "it ran")], object), y=np.ones(1))
    with pytest.raises(ValueError, match="cannot be read"):
        datasets._read(path, ("X", "y"))


def test_a_model_with_anything_else_inside_is_refused(trap, tmp_path):
    """What docs tell users to load models with trusts nothing but a NumPy dtype."""
    path = tmp_path / saved_model.FILE
    skops.dump({"model": Malicious(tmp_path / "it ran")}, path)
    with pytest.raises(Exception, match="Untrusted"):
        skops.load(path, trusted=saved_model.TRUSTED)
    path.write_bytes(trap)
    with pytest.raises(Exception, match=r"zip"):
        skops.load(path, trusted=saved_model.TRUSTED)


# Paths


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run on a small table."""
    folder = tmp_path_factory.mktemp("run")
    table(["red", "blue"]).to_csv(folder / "train.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        standins.install(patch)
        regularize(job("regularize", folder / "train.csv", "label", folder))
    return folder / "regularize"


def table(labels, names=("a", "b"), rows=40):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({name: rng.standard_normal(rows) for name in names})
    return frame.assign(label=[labels[row % len(labels)] for row in range(rows)])


@pytest.mark.parametrize("way", ["up", "absolute", "link", "folder", "empty"])
def test_names_in_a_result_cannot_leave_its_folder(way, run, tmp_path):
    copy, secret = tmp_path / "copy", tmp_path / "secret.csv"
    shutil.copytree(run, copy)
    shutil.copy(copy / "history.csv", secret)
    found = json.loads((copy / "result.json").read_text())
    names = {"up": "../secret.csv", "absolute": str(secret), "folder": "..", "empty": ""}
    if way == "link":
        (copy / "history.csv").unlink()
        (copy / "history.csv").symlink_to(secret)
    else:
        found["files"]["history"] = names[way]
        (copy / "result.json").write_text(json.dumps(found))
    with pytest.raises(ValueError, match="is not the name of a file in") as caught:
        run_page.write(copy, tmp_path)
    assert_one_sentence(str(caught.value))
    assert not (tmp_path / "report.html").exists()


def test_a_page_of_somebody_else_is_not_replaced(run, tmp_path):
    """A run's own page is; so is one that was put elsewhere by `untuned report DIR --out`."""
    run_page.write(run, run)
    page = tmp_path / "report.html"
    for _ in range(2):
        run_page.write(run, tmp_path)
    page.rename(tmp_path / "other.html")
    for make in (
        page.mkdir,
        lambda: page.symlink_to("other.html"),
        lambda: page.write_text("mine"),
    ):
        make()
        with pytest.raises(ValueError, match="was not made by untuned, so it is not") as caught:
            run_page.write(run, tmp_path)
        assert_one_sentence(str(caught.value))
        page.rmdir() if page.is_dir() else page.unlink() if page.is_symlink() else None
    assert page.read_text() == "mine"


def test_names_in_a_table_cannot_leave_the_output_folder(tmp_path, monkeypatch):
    standins.install(monkeypatch)
    names = ["../../up", "/tmp/absolute", "..", "a/b"]
    frame = table(["../x", "/y"], names).rename(columns={"label": "../label"})
    frame.to_csv(tmp_path / "train.csv", index=False)
    regularize(job("regularize", tmp_path / "train.csv", "../label", tmp_path))
    clean(job("clean", tmp_path / "train.csv", "../label", tmp_path))
    assert {path.name for path in tmp_path.iterdir()} == {"train.csv", "regularize", "clean"}
    assert not any(path.is_dir() for path in (tmp_path / "clean").iterdir())


# Pages

MARK = "window.ran=1"
ATTACKS = [
    f"<script>{MARK}</script>",
    f"</script><script>{MARK}</script>",
    f'"><img src=x onerror="{MARK}">',
    f"<svg/onload={MARK}>",
    f"' onmouseover='{MARK}",
    f'<a href="javascript:{MARK}">x</a>',
    f"</style></title></pre><script>{MARK}</script>",
    f"<!--<script>{MARK}//-->",
    "%{text}<b>&lt;i&gt;",
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Runs on a table whose every name and value is an attack, its file name too."""
    folder = tmp_path_factory.mktemp("hostile")
    frame = table(ATTACKS[:3], ATTACKS[3:], 60)
    frame["city"] = [ATTACKS[row % 8] for row in range(60)]
    frame["note"] = [f"{ATTACKS[row % 9]} {row}" for row in range(60)]
    label = f"label {ATTACKS[1]}"
    path = folder / f"<img src=x onerror={MARK}>.csv"
    frame.rename(columns={"label": label}).to_csv(path, index=False)
    with pytest.MonkeyPatch.context() as patch:
        standins.install(patch)
        patch.setattr("sys.argv", ["untuned", "clean", *ATTACKS])
        clean(job("clean", path, label, folder))
        regularize(job("regularize", path, label, folder))
        coreset(job("coreset", path, label, folder), 12)
    return folder


def assert_nothing_ran(browser, page):
    opened(browser, page)  # which also sees that the console is empty
    assert browser.execute_script("return window.ran") is None
    # Where such a mark would wait for a hand, too.
    handlers = "[onerror],[onload],[onmouseover],a[href^='javascript'],img:not([src^='data:'])"
    assert browser.find_elements("css selector", handlers) == []


@pytest.mark.browser
@pytest.mark.parametrize("command", ["clean", "regularize", "coreset"])
def test_a_page_shows_scripts_as_text(command, hostile, browser):
    assert_nothing_ran(browser, hostile / command / "report.html")
    shown = browser.execute_script("return document.body.textContent")
    assert ATTACKS[1] in shown
    assert f"<img src=x onerror={MARK}>.csv" in shown


@pytest.mark.browser
@pytest.mark.parametrize("command", ["clean", "regularize"])
def test_a_result_somebody_else_wrote_runs_nothing(command, hostile, browser, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(hostile / command, copy)

    def spoiled(value, key=""):
        if isinstance(value, dict):
            return {name: spoiled(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [spoiled(each) for each in value]
        names = ("command", "kind", "label", "status", "task")
        return f"{value} {ATTACKS[1]}" if isinstance(value, str) and key not in names else value

    found = json.loads((copy / "result.json").read_text())
    kept = {"files": found["files"], "images": found["images"]}
    (copy / "result.json").write_text(json.dumps(spoiled(found) | kept))
    assert_nothing_ran(browser, run_page.write(copy, copy))
