"""The page of a run: what it says, and how it behaves in a real browser and on a phone."""

import base64
import io
import json
import re
import shutil

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from PIL import Image
from sklearn.datasets import load_digits, load_wine

import standins
from pages import each, eventually, find, job, opened
from untuned.commands.clean import clean
from untuned.commands.coreset import coreset
from untuned.commands.regularize import regularize
from untuned.report import drawings, page, pictures, run_page
from untuned.report.clean_page import share_of_wrong
from untuned.report.grid import grid

EVIL, BOLD = "<script>alert(1)</script>", "<b>ash</b>"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with a run of each command, by estimators whose findings are known."""
    folder = tmp_path_factory.mktemp("runs")
    digits = load_digits(as_frame=True).frame.iloc[:200].rename(columns={"target": "digit"})
    digits.to_csv(folder / "digits.csv", index=False)
    wine = load_wine(as_frame=True).frame.rename(columns={"hue": EVIL, "ash": BOLD})
    wine["target"] = wine["target"].map({0: "<b>red</b>", 1: "a&b", 2: 'say "white"'})
    wine.to_parquet(folder / "wine.parquet")
    with pytest.MonkeyPatch.context() as patch:
        standins.install(patch)
        clean(job("clean", folder / "digits.csv", "digit", folder))
        regularize(job("regularize", folder / "wine.parquet", "target", folder))
        coreset(job("coreset", folder / "wine.parquet", "target", folder), 30)
    return folder


def text_of(runs, command):
    return (runs / command / "report.html").read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.parametrize("command", ["clean", "regularize", "coreset"])
def test_page_is_made_from_the_folder_alone(runs, command, tmp_path):
    """Made again elsewhere it is the same, save the names plotly makes up for its charts."""
    shutil.copytree(runs / command, tmp_path / "copy")
    (tmp_path / "copy" / "report.html").unlink()
    again = run_page.write(tmp_path / "copy", tmp_path / "copy").read_text(encoding="utf-8")
    chart = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
    assert chart.sub("", again) == chart.sub("", text_of(runs, command))


@pytest.mark.parametrize("command", ["clean", "regularize", "coreset"])
def test_page_fetches_nothing_and_says_how_it_was_made(runs, command):
    text = text_of(runs, command)
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=[\"'](?!data:)", text)
    result = json.loads((runs / command / "result.json").read_text())
    for version in result["versions"].values():
        assert f"<td>{version}</td>" in text
    assert "The last search took 11 steps in 0.5 s" in text
    assert "<pre><code>untuned" in text
    assert text.count("<svg viewBox") >= 3
    charts = {"clean": 0, "regularize": 5, "coreset": 0}[command]
    assert text.count('class="plotly-graph-div"') == charts


def test_names_that_look_like_nothing_are_shown(tmp_path, monkeypatch):
    wine = load_wine(as_frame=True).frame.iloc[:, -4:]
    wine.set_axis(["NA", "null", "007", "target"], axis=1).to_csv(tmp_path / "w.csv", index=False)
    standins.install(monkeypatch)
    regularize(job("regularize", tmp_path / "w.csv", "target", tmp_path))
    text = text_of(tmp_path, "regularize")
    for name in ("NA", "null", "007"):
        assert text.count(f'<td class="text">{name}</td>') == 3  # columns, strengths, coefficients


def shades(pixels, side):
    return [
        np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))).tolist()
        for uri in pictures.data_uris(np.array(pixels, float), side, 16.0)
    ]


def test_images_show_the_rows():
    first, _ = shades([[0, 16, 16, 16], [16, 0, 16, 16]], 2)
    assert first == [[0, 255], [255, 255]]
    # Light ink on a dark ground is drawn the other way round.
    assert shades([[0, 0, 0, 16]], 2) == [[[255, 255], [255, 0]]]


def test_grid_holds_every_value_and_no_markup_of_the_data():
    frame = pd.DataFrame({"x": [1.23456789, np.nan], EVIL: ["<i>", None], "whole": [2**60, 3]})
    text = grid(frame, 'a "name"', choices=(EVIL,))
    assert 'data-value="1.23456789"' in text
    assert ">1.235<" in text
    assert f">{2**60}<" in text
    assert "<script>" not in text
    assert "<i>" not in text
    assert 'aria-label="a &quot;name&quot;"' in text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "There is no"),
        ("not json", "is not the result of a run"),
        ("[1]", "is not the result of a run"),
        ('{"command": "fly"}', "'fly', which has no page"),
    ],
)
def test_folders_without_a_run_are_refused(content, words, tmp_path):
    if content:
        (tmp_path / "result.json").write_text(content)
    with pytest.raises(ValueError, match=words):
        run_page.write(tmp_path, tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_table_that_is_gone_is_named(runs, tmp_path):
    shutil.copytree(runs / "clean", tmp_path / "copy")
    (tmp_path / "copy" / "suspects.csv").unlink()
    with pytest.raises(ValueError, match=r"suspects\.csv is missing"):
        run_page.write(tmp_path / "copy", tmp_path / "copy")
    assert (tmp_path / "copy" / "report.html").exists()  # the old page stays


def column(browser, place):
    """What the visible rows of the first grid show in a column, from the top."""
    cells = f"tbody tr:not([hidden]) td:nth-child({place + 1})"
    return [cell.text for cell in find(browser, ".grid")[0].find_elements("css selector", cells)]


@pytest.mark.browser
def test_strengths_are_sorted_as_numbers(runs, browser):
    opened(browser, runs / "regularize" / "report.html")
    strengths = [0.25 * 2**power for power in range(13)]
    assert [float(each) for each in column(browser, 1)] == strengths
    heading = find(browser, ".grid")[0].find_elements("css selector", "th")[1]
    assert heading.get_attribute("aria-sort") == "ascending"
    heading.find_element("css selector", "button").click()
    assert [float(each) for each in column(browser, 1)] == strengths[::-1]
    assert EVIL in column(browser, 0)


@pytest.mark.browser
def test_charts_are_as_large_as_they_were_drawn(runs, browser):
    """A page has drawings of its own beside plotly's charts, and each its own style."""
    opened(browser, runs / "regularize" / "report.html")
    width = "[Number(each.getAttribute('width')), each.getBoundingClientRect().width]"
    sizes = each(browser, "svg.main-svg", width)
    assert sizes
    for drawn, shown in sizes:
        assert shown == pytest.approx(drawn, abs=1)


@pytest.mark.browser
def test_charts_show_names_as_they_are(runs, browser):
    """plotly would take <b> in a name for one of its own marks."""
    opened(browser, runs / "regularize" / "report.html")
    # A chart is drawn anew when it is fitted.
    assert eventually(lambda: BOLD in each(browser, ".ytick text", "each.textContent"))


@pytest.mark.browser
@pytest.mark.parametrize("width", [320, 1200])
@pytest.mark.parametrize("command", ["clean", "regularize", "coreset"])
def test_nothing_sticks_out_sideways(runs, browser, command, width):
    opened(browser, runs / command / "report.html", width)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    excess = "each.querySelector('.main-svg').clientWidth - each.clientWidth"
    # plotly fits a chart a moment after it is asked to.
    assert eventually(lambda: max([0, *each(browser, ".plotly-graph-div", excess)]) <= 1)


def test_what_is_counted_has_whole_numbers_beside_it():
    """Two and a half rows, or steps, are nobody's."""
    rows = drawings.histogram([0.1] * 9 + [0.7], "Weights", "weight", 0, 1)
    assert re.findall(r">([\d.]+)</text>", rows)[:2] == ["0", "5"]
    names = [name for lines in drawings.PANELS.values() for name in lines]
    history = pd.DataFrame(
        {"step": [1, 2, 3], "outer": [3.0, 2.0, 1.5]} | dict.fromkeys(names, 1.0)
    )
    steps = drawings.convergence(history).partition("</svg>")[0]
    assert re.findall(r">([\d.]+)</text>", steps)[-3:] == ["1", "2", "3"]


def test_the_share_of_wrong_labels_comes_with_what_is_possible():
    """Runs of an older version have neither a range nor disputed labels, and are shown as well."""
    older = {"noise_rate_estimate": 0.125, "doubt": "Judges doubt."}
    assert share_of_wrong(older) == "Estimated share of wrong labels: 12.5%. Judges doubt."
    now = share_of_wrong(older | {"noise_range": [0.1, 0.5], "more_disputed_labels": 1234})
    assert now.startswith("Estimated share of wrong labels: 12.5% (10.0% to 50.0% are possible).")
    assert "take 1,234 rows for another class" in now


def written(tmp_path, sections):
    path = tmp_path / "report.html"
    page.write(path, "A <b> title", "lead & more", sections, footer="made by a test")
    return path.read_text(encoding="utf-8")


def test_text_of_a_page_is_escaped(tmp_path):
    frame = pd.DataFrame({"name": ["<script>alert(1)</script>"], "value": [1.5]})
    text = written(tmp_path, [page.Section("x < y", "one\n\ntwo", page.table(frame))])
    assert "<script>" not in text
    assert "A &lt;b&gt; title" in text
    assert "x &lt; y" in text
    assert "<p>one</p>\n<p>two</p>" in text


def test_script_is_inside_and_there_once(tmp_path):
    charts = "".join(page.chart(go.Figure(go.Scatter(x=[0, 1], y=[2, 3]))) for _ in range(2))
    text = written(tmp_path, [page.Section("charts", body=charts)])
    assert text.count("plotly.js v") == 1
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", text)
