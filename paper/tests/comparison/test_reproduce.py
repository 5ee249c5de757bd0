"""`untuned reproduce` as a user meets it: in processes of its own, on the bundled digits."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from untuned.report import page
from untuned_paper import reproduce
from untuned_paper.comparison import figures, grids, pool, tuning

ROOT = Path(__file__).parents[3]
BENCHMARK = ROOT / "benchmarks" / "bilevel"
BIN = Path(sys.executable).parent
SMALL = ("--quick", "--problem", "digits-cleaning", "--max-seconds", "0.1", "--out", "out")


def reproduced(*arguments, cwd, **environment):
    command = [BIN / "untuned", "reproduce", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=os.environ | environment, check=False
    )


def written(folder):
    """When each record was written."""
    return {path.name: path.stat().st_mtime_ns for path in (folder / "records").iterdir()}


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduce")
    methods = ("--method", "soba", "--method", "s-tfbo")
    return reproduced("figure1", *SMALL, *methods, cwd=folder), folder


@pytest.mark.process
def test_figure_is_made(done):
    process, folder = done
    assert process.returncode == 0, process.stderr
    assert "4/4" in process.stdout
    assert "Quick: at most 2,000 rows" in process.stdout
    assert "of the gap left" in process.stdout
    out = folder / "out"
    assert {path.name for path in out.iterdir()} == {
        "figure1.png", "figure1-loss.png", "calls.png", "figure1.html", "table.csv",
        "records.parquet", "records", "written.json",
    }  # fmt: skip
    for picture in out.glob("*.png"):
        with Image.open(picture) as opened:
            assert opened.width > 900


@pytest.mark.process
def test_records_hold_everything(done):
    _, folder = done
    frame = pd.read_parquet(folder / "out" / "records.parquet")
    runs = frame[frame["method"] != pool.REFERENCE]
    shown = set(zip(runs["method"], runs["setting"], strict=True))
    assert shown == {("soba", "tuned"), ("soba", "default"), ("s-tfbo", "default")}
    for _, run in runs.groupby(["method", "setting"]):
        assert run["step"].iloc[0] == 0
        for column in ("step", "seconds", "oracle_calls", "inner_grad", "hvp", "cross"):
            assert run[column].is_monotonic_increasing
        assert run["value"].notna().all()
        assert run["status"].iloc[-1] == "max_seconds"
        assert run["test_error"].between(0, 1).all()
        assert run["compile_seconds"].iloc[-1] > 0
    table = pd.read_csv(folder / "out" / "table.csv")
    assert table["final_phi"].is_monotonic_increasing
    ends = runs.groupby(["method", "setting"])["value"].last()
    for line in table.itertuples():
        assert line.final_phi == pytest.approx(ends[line.method, line.setting])


@pytest.mark.process
def test_page_is_one_file_with_charts_and_table(done):
    _, folder = done
    text = (folder / "out" / "figure1.html").read_text(encoding="utf-8")
    assert text.count('class="plotly-graph-div"') == 3
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", text)
    assert "Quick: at most 2,000 rows" in text
    assert "s to 0.1 %, tuned" in text
    assert "oracle calls" in text


@pytest.mark.browser
@pytest.mark.process
def test_page_draws_itself_in_a_browser(done, tmp_path):
    _, folder = done
    shown = subprocess.run(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
            f"--user-data-dir={tmp_path}", "--virtual-time-budget=10000",
            (folder / "out" / "figure1.html").as_uri(),
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    # Two panels and a legend to each of the three charts, drawn by the script inside the file.
    assert shown.stdout.count('class="xtitle"') + shown.stdout.count('class="x2title"') == 6
    assert shown.stdout.count('class="legendtext') >= 6


@pytest.mark.process
def test_the_other_figure_uses_the_same_records(done):
    _, folder = done
    before = written(folder / "out")
    process = reproduced("figure2", *SMALL, "--method", "soba", "--method", "s-tfbo", cwd=folder)
    assert process.returncode == 0, process.stderr
    assert written(folder / "out") == before
    assert (folder / "out" / "figure2.html").is_file()
    assert (folder / "out" / "figure2.png").is_file()


@pytest.mark.process
def test_other_settings_are_other_records(done):
    _, folder = done
    before = written(folder / "out")
    process = reproduced("figure1", *SMALL, "--method", "s-tfbo", "--seed", 5, cwd=folder)
    assert process.returncode == 0, process.stderr
    after = written(folder / "out")
    assert {name: after[name] for name in before} == before
    (new,) = set(after) - set(before)
    assert "seed_5" in new
    frame = pd.read_parquet(folder / "out" / "records.parquet")
    assert set(frame.loc[frame["method"] == "s-tfbo", "seed"]) == {5}


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks up processes in /proc")
@pytest.mark.process
def test_a_killed_command_goes_on_where_it_was(tmp_path):
    methods = ("d-tfbo", "s-tfbo", "soba", "fsla", "ttsa")
    chosen = [part for method in methods for part in ("--method", method)]
    command = [BIN / "untuned", "reproduce", "figure2", *SMALL, *chosen]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
    folder = tmp_path / "out" / "records"
    while process.poll() is None and len(list(folder.glob("*.parquet"))) < 3:
        time.sleep(0.01)
    workers = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert workers
    deadline = time.monotonic() + 20
    while any(alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in workers)
    assert not (tmp_path / "out" / "figure2.png").exists()
    before = {
        name: when for name, when in written(tmp_path / "out").items() if "untuned-" not in name
    }
    assert 3 <= len(before) < 9
    again = reproduced("figure2", *SMALL, *chosen, cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "9/9" in again.stdout
    after = written(tmp_path / "out")
    assert {name: after[name] for name in before} == before
    frame = pd.read_parquet(tmp_path / "out" / "records.parquet")
    ends = frame[frame["method"] != pool.REFERENCE].groupby(["method", "setting"])["status"].last()
    assert len(ends) == 8
    assert set(ends) == {"max_seconds"}


@pytest.mark.process
def test_tuning_counts_what_it_costs(tmp_path, monkeypatch):
    # The grids' real size is a test of its own; here it is four points.
    small = grids.Grid((0.1, 1.0), (1e-4, 1.0))
    monkeypatch.setitem(grids.GRIDS, "mnist-0.5", small)
    arguments = (tmp_path, True, 0, 0.05, ["soba"], ["digits-cleaning"])
    assert "best setting" in tuning.tuning(*arguments)
    frame = pd.read_parquet(tmp_path / "tuning.parquet")
    assert frame["setting"].nunique() == 4
    (line,) = pd.read_csv(tmp_path / "tuning.csv").to_dict("records")
    ends = frame.groupby("setting").last()
    assert line["runs"] == 4
    assert line["seconds"] == pytest.approx(ends["seconds"].sum())
    assert line["oracle_calls"] == ends["oracle_calls"].sum()
    assert line["best Phi"] == pytest.approx(tuning.final(frame)["value"].min())
    assert line["best Phi"] <= line["median Phi"]
    text = (tmp_path / "tuning.html").read_text(encoding="utf-8")
    assert text.count('class="plotly-graph-div"') == 1
    # A figure with the same budget finds the search on record and puts it on the bill.
    figures.figure1(*arguments)
    table = pd.read_csv(tmp_path / "table.csv").set_index("setting")
    assert table.loc["tuned", "bill"] == "run"
    assert table.loc["default", "bill"] == "none"


@pytest.mark.process
def test_runs_that_had_no_time_for_a_step_are_drawn(tmp_path):
    figures.figure1(tmp_path, True, 0, 1e-9, ["aid"], ["digits-cleaning"])
    records = pd.read_parquet(tmp_path / "records.parquet")
    assert records["step"].max() < 100  # of those that made one, the first chunk was not over


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("figur1",), "no figure 'figur1'; the nearest name is 'figure1'"),
        (("figure1", "--method", "sobaa"), "no method 'sobaa'; the nearest name is 'soba'"),
        (("figure1", "--problem", "covtyp"), "no problem 'covtyp'; the nearest name is 'covtype'"),
        (("tuning", "--max-seconds", "0"), "--max-seconds 0.0 is not usable"),
    ],
)
@pytest.mark.process
def test_bad_input_ends_in_one_sentence_and_leaves_nothing(arguments, words, tmp_path):
    process = reproduced(*arguments, "--out", "out", cwd=tmp_path)
    assert process.returncode == 2
    assert words in process.stderr
    assert process.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.process
def test_missing_data_are_named(tmp_path):
    arguments = ("figure1", "--quick", "--problem", "ijcnn1", "--method", "soba", "--out", "out")
    process = reproduced(*arguments, cwd=tmp_path, UNTUNED_DATA=str(tmp_path))
    assert process.returncode == 2
    assert "put ijcnn1.npz" in process.stderr
    assert "UNTUNED_DATA" in process.stderr
    assert "Traceback" not in process.stderr
    assert not list((tmp_path / "out" / "records").glob("*.parquet"))


@pytest.mark.process
def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "out").write_text("mine")
    process = reproduced("figure1", "--quick", "--out", "out", cwd=tmp_path)
    assert process.returncode == 2
    assert "is a file" in process.stderr
    assert (tmp_path / "out").read_text() == "mine"


def test_a_recipe_refuses_options_it_does_not_take(tmp_path, monkeypatch):
    def plain(out, quick, seed, max_seconds):
        return "made"

    monkeypatch.setattr(page, "plain", plain, raising=False)
    monkeypatch.setitem(reproduce.RECIPES, "plain", "untuned.report.page:plain")
    assert reproduce.run("plain", tmp_path, False, 0, None, method=None) == "made"
    with pytest.raises(ValueError, match="reproduce plain takes no --method; leave it out"):
        reproduce.run("plain", tmp_path, False, 0, None, method=["soba"])


def test_without_the_study_the_command_says_how_to_install_it(untuned, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    code, _, err = untuned("reproduce", "figure1")
    assert code == 2
    assert err == (
        "untuned: untuned reproduce needs the package untuned-paper, which is not installed; "
        "install it with pip install 'untuned[paper]'.\n"
    )


def test_a_method_with_nothing_to_choose_cannot_be_tuned(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning.plans, "search", lambda plan: [])
    with pytest.raises(ValueError, match="nothing to tune in s-tfbo"):
        tuning.tuning(tmp_path, True, 0, None, ["s-tfbo"], ["digits-cleaning"])


@pytest.mark.process
def test_benchopt_runs_the_benchmark(tmp_path):
    """With benchopt's own cache, parallel back end and pages."""
    benchmark = tmp_path / "bilevel"
    shutil.copytree(BENCHMARK, benchmark)
    command = [
        BIN / "benchopt", "run", benchmark, "-d", "problem[problem=digits-cleaning,rows=200]",
        "-o", "Bilevel optimization[max_seconds=0.1]",
        "-s", "untuned[method=[soba,s-tfbo]]", "-j", "2", "--no-display", "--output", "small",
    ]  # fmt: skip

    def run():
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    first = run()
    assert first.returncode == 0, first.stdout + first.stderr
    frame = pd.read_parquet(benchmark / "outputs" / "small.parquet")
    assert set(frame["p_solver_method"]) == {"soba", "s-tfbo"}
    assert frame["objective_value"].notna().all()
    assert {"objective_seconds", "objective_compile_seconds", "objective_oracle_calls"} <= set(
        frame
    )
    assert "no tuned values of s-tfbo are published" in first.stdout
    assert list((benchmark / "outputs").glob("*.html"))
    again = run()
    assert again.returncode == 0
    assert "cached" in again.stdout


@pytest.mark.process
def test_benchopt_finds_the_benchmark_well_formed(tmp_path):
    benchmark = tmp_path / "bilevel"
    shutil.copytree(BENCHMARK, benchmark)
    # benchopt starts the first pytest on the path.
    path = os.pathsep.join((str(BIN), os.environ["PATH"]))
    process = subprocess.run(
        [BIN / "benchopt", "test", benchmark, "--skip-install"], capture_output=True, text=True,
        cwd=tmp_path, env=os.environ | {"PATH": path}, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stdout
    assert re.search(r"\d passed", process.stdout)
