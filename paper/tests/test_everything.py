"""`untuned reproduce all`: what is made, what is not made again, and how claims are judged."""

import json
import runpy
from pathlib import Path

import numpy as np
import pandas
import pytest

from untuned_paper import claims, everything, reproduce, results

ROOT = Path(__file__).parent.parent.parent
SCRIPT = runpy.run_path(str(ROOT / "benchmarks" / "results_page.py"))


def made_by(calls, broken=()):
    """A stand-in for the recipes, which writes the page of each."""

    def run(name, out, quick, seed, max_seconds, **options):
        calls.append((name, quick, seed, options))
        if name in broken:
            raise ValueError("The data set cifar100 is not here.")
        out.mkdir(parents=True, exist_ok=True)
        part = next(part for part in everything.PARTS if part.name == name)
        (out / part.page).write_text("a page")
        return f"<{name}> is made"

    return run


def test_every_recipe_is_a_part():
    assert {part.name for part in everything.PARTS} == set(reproduce.RECIPES) - {"all"}


def test_parts_are_made_once_and_linked(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(reproduce, "run", made_by(calls))
    out = tmp_path / "all"
    words = everything.reproduce(out, True, 0, None)
    assert [call[0] for call in calls] == [part.name for part in everything.PARTS]
    assert {call[0]: call[3] for call in calls}["table2"] == {"tasks": 3, "seeds": 1}
    text = (out / "index.html").read_text()
    for part in everything.PARTS:
        assert f'href="{part.folder}/{part.page}"' in text
        assert f"&lt;{part.name}&gt; is made" in text  # escaped
    assert '<div class="wide prose">' in text  # sentences are not cut off at the side
    assert "not run: D-TFBO is fastest on Covtype" in words
    assert len(pandas.read_csv(out / "claims.csv")) == len(claims.CLAIMS)
    made = (out / "results.md").read_text()
    assert made.startswith("`untuned reproduce all --quick`, 20")
    assert "| D-TFBO is fastest on Covtype | **not run** | `figure1` |" in made
    assert "| the average of \\|grad Phi\\|^2 falls like 1/T |" in made
    everything.reproduce(out, True, 0, None)
    assert len(calls) == len(everything.PARTS)  # nothing again
    (out / "theory" / "report.html").unlink()
    everything.reproduce(out, True, 0, None)
    assert [call[0] for call in calls[len(everything.PARTS) :]] == ["theory"]
    everything.reproduce(out, False, 0, None)  # other settings, other runs
    assert len(calls) == 2 * len(everything.PARTS) + 1
    assert calls[-1] == ("theory", False, 0, {})


def test_a_part_that_cannot_be_made_is_said_and_tried_again(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(reproduce, "run", made_by(calls, broken=("table1",)))
    words = everything.reproduce(tmp_path, False, 0, None)
    assert "table1 not made: The data set cifar100 is not here." in words
    assert "table1" not in json.loads((tmp_path / everything.DONE).read_text())["parts"]
    assert "Not made: The data set cifar100" in (tmp_path / "index.html").read_text()
    calls.clear()
    everything.reproduce(tmp_path, False, 0, None)
    assert [call[0] for call in calls] == ["table1"]


def test_what_it_does_not_take_is_refused(tmp_path):
    with pytest.raises(ValueError, match="takes no --max-seconds, since its parts count"):
        reproduce.run("all", tmp_path, True, 0, 3.0)
    with pytest.raises(ValueError, match="reproduce all takes no --method; leave it out"):
        reproduce.run("all", tmp_path, True, 0, None, method=["auto"])
    (tmp_path / everything.DONE).write_text("[]")
    with pytest.raises(ValueError, match="is not a list of finished parts; remove it"):
        everything.reproduce(tmp_path, True, 0, None)


def curve(problem, method, setting, end, seed=0):
    return pandas.DataFrame(
        {
            "problem": problem, "method": method, "setting": setting, "seed": seed,
            "step": [0, 10], "value": [1.0, end], "status": "running", "seconds": [0.0, 1.0],
            "oracle_calls": [0, 100], "compile_seconds": 0.0,
        }
    )  # fmt: skip


@pytest.mark.parametrize(("end", "fastest", "comparable"), [(0.0, True, True), (0.5, False, False)])
def test_the_comparison_is_judged_by_places_and_medians(end, fastest, comparable):
    records = pandas.concat(
        [
            curve("covtype", "l-bfgs", "iterations=1", 0.0),
            curve("covtype", "auto", "default", 0.0),  # which the paper does not have
            curve("covtype", "d-tfbo", "default", end),
            curve("covtype", "soba", "tuned", 0.1),
            curve("covtype", "fsla", "tuned", 0.3),
            curve("covtype", "fsla", "default", 0.9),
        ]
    )
    holds, words = claims._fastest(records)
    assert holds == fastest
    assert f"number {1 if fastest else 3} of 4" in words
    holds, words = claims._comparable("d-tfbo", "covtype")(records)
    assert holds == comparable
    assert "the tuned methods' median is 20.0%, their best 10.0%" in words


def test_start_values_are_judged_by_the_median_pair():
    pairs = [0.0, 0.05, 0.1]
    good = [curve("covtype", "d-tfbo", f"alpha0={k}", end) for k, end in enumerate(pairs)]
    assert claims._robust(pandas.concat(good))[0]
    lost = curve("covtype", "d-tfbo", "alpha0=9", 0.0).assign(status="diverged")
    holds, words = claims._robust(pandas.concat([*good, lost]))
    assert not holds
    assert "1 of 4 diverge" in words


def test_memories_are_judged_by_a_standard_error():
    def runs(gain):
        return pandas.DataFrame(
            [
                {"setting": setting, "method": name, "seed": seed, "A_T": 70 + seed + more}
                for setting in ("balanced", "imbalanced")
                for seed in range(3)
                for name, more in (("uniform", 0), ("d-tfbo", gain[seed]))
            ]
        )

    judge = claims._above("uniform", {"d-tfbo": "D-TFBO"})
    assert judge(runs([1, 2, 3]))[0]
    assert judge(runs([-1, 1, -0.3]))[0]  # within one standard error of zero
    holds, words = judge(runs([-3, -2, -1]))
    assert not holds
    assert f"D-TFBO balanced -2.0 ± {1 / np.sqrt(3):.1f}" in words
    judge = claims._first("d-tfbo")
    holds, words = judge(runs([1, 2, 3]))
    assert holds
    assert words.startswith("balanced +2.0 ± 0.6 over the next, Uniform Sampling; imbalanced +2.0")
    assert not judge(runs([-1, 1, 1]))[0]  # above, but by less than a standard error


def test_theory_and_table_2_are_judged():
    assert claims._bounds(pandas.DataFrame({"holds": [True, False]})) == (
        False, "1 of 2 inequalities hold at every step",
    )  # fmt: skip
    assert claims._rates(pandas.DataFrame({"in the last decade": [-1.0, -0.994]}))[0]
    runs = pandas.DataFrame(
        [
            {"method": name, "start": start, "A_T": 60.0 if start is None else end}
            for name, end in (("d-tfbo", 60.6), ("s-tfbo", 54.0))
            for start in (None, 2.0, 4.0, 6.0, 8.0)
        ]
    ).astype({"start": float})
    holds, words = claims._insensitive(runs)
    assert not holds
    assert words == "D-TFBO 1.0%, S-TFBO 10.0%; the paper's figure for BCSR is 5.9%"


def test_the_page_gets_the_claims_of_the_run():
    columns = ["the paper says", "here", "figures", "by"]
    line = ["|h| falls", "holds", "slope -1", "untuned reproduce theory"]
    text = results.markdown(True, pandas.DataFrame([line], columns=columns), {"a": {"seconds": 90}})
    assert "1.5 minutes on" in text
    assert text.splitlines()[-1] == "| \\|h\\| falls | **holds** | `theory` |"


def test_the_script_replaces_what_is_between_the_marks():
    page = f"before\n{SCRIPT['BEGIN']}old\n{SCRIPT['END']}after\n"
    once = SCRIPT["with_results"](page, "new")
    assert once == f"before\n{SCRIPT['BEGIN']}\nnew\n\n{SCRIPT['END']}after\n"
    assert SCRIPT["with_results"](once, "new") == once
    with pytest.raises(ValueError, match="The page lacks the line"):
        SCRIPT["with_results"]("a page", "a table")


def test_the_page_of_results_shows_every_claim_as_it_is_worded_now():
    page = (ROOT / "docs" / "results.md").read_text()
    made = page.partition(SCRIPT["BEGIN"])[2].partition(SCRIPT["END"])[0]
    for claim in claims.CLAIMS:
        assert f"| {claim.says} |".replace("|grad Phi|", "\\|grad Phi\\|") in made
