"""The HTML page: one file, nothing fetched, text escaped."""

import re

import pandas
import plotly.graph_objects as go

from untuned.report import page


def written(tmp_path, sections):
    path = tmp_path / "report.html"
    page.write(path, "A <b> title", "lead & more", sections, footer="made by a test")
    return path.read_text(encoding="utf-8")


def test_text_is_escaped(tmp_path):
    frame = pandas.DataFrame({"name": ["<script>alert(1)</script>"], "value": [1.5]})
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


def test_page_without_charts_is_small(tmp_path):
    assert len(written(tmp_path, [page.Section("words", "only words")])) < 5_000
