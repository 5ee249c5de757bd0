"""What `untuned reproduce theory` measures, writes and says."""

import numpy as np
import pandas
import pytest

from untuned_paper.theory import study
from untuned_paper.theory.study import reproduce


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    out = tmp_path_factory.mktemp("theory")
    return out, reproduce(out, quick=True, seed=1, max_seconds=None)


@pytest.mark.long
def test_everything_is_written(written):
    out, text = written
    for name in study.Findings._fields:
        assert len(pandas.read_parquet(out / f"{name}.parquet")) > 0, name
    for picture in ("averages", "stages", "sub_loops"):
        assert (out / f"{picture}.png").read_bytes().startswith(b"\x89PNG")
    page = (out / "report.html").read_text()
    assert page.count('class="plotly-graph-div"') == 2
    assert "168 of 168 inequalities hold" in text
    assert "168 of 168 inequalities hold" in page


@pytest.mark.long
def test_averages_are_below_their_bounds_and_fall_like_one_over_the_steps(written):
    averages = pandas.read_parquet(written[0] / "averages.parquet")
    assert (averages["average"] <= averages["bound"]).all()
    assert set(averages["T"]) == {100, 1000, 10_000}
    slopes = pandas.read_parquet(written[0] / "slopes.parquet").set_index(["problem", "method"])
    for method in ("D-TFBO", "S-TFBO"):
        assert slopes.loc[("steep in x", method), "average in T"] == pytest.approx(-1, abs=0.05)
        assert slopes.loc[("steep in x", method), "evaluations in epsilon"] > -1.1
    promised = slopes["promised evaluations in epsilon"].unstack()
    np.testing.assert_allclose(promised["D-TFBO"], -2, atol=0.01)
    np.testing.assert_allclose(promised["S-TFBO"], -1, atol=0.02)


@pytest.mark.long
def test_printed_claims_are_exceeded_with_another_seed_too(written):
    found = pandas.read_parquet(written[0] / "printed.parquet")
    assert (found["measured / printed"] > 1).all()
    assert (found["measured / supported"] <= 1).all()


def test_little_time_gives_fewer_runs(monkeypatch):
    monkeypatch.setattr(study, "_checks", lambda name, T, seed: [{"problem": name}])
    monkeypatch.setattr(study, "_averages", _no_averages)
    monkeypatch.setattr(study, "_slopes", lambda frame, seed: [])
    monkeypatch.setattr(study, "_sub_loops", lambda name, T, seed: {})
    monkeypatch.setattr(study, "_printed", lambda seed: [])
    monkeypatch.setattr(study, "_stages", lambda seed: ([], []))
    found = study.measure(quick=False, seed=0, max_seconds=1e-9)
    assert found.averages["problem"].tolist() == ["gentle"]
    assert found.checks["problem"].tolist() == ["gentle"]


def _no_averages(name, steps, seed):
    return [{"problem": name}]
