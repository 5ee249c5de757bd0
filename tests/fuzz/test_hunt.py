"""What finds faults: the seeds' loop says what it found, and the judges know right from wrong."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

import hunt
import made_programs
import programs
import tables
import targets


def test_a_hunt_says_what_it_found(capsys, monkeypatch):
    """One line for each finding, with the command that repeats it, and exit code 1."""

    def check(seed):
        hunt.expect(seed != 3, "three is wrong")
        if seed == 4:
            raise ZeroDivisionError("no words")

    monkeypatch.setattr("sys.argv", ["fuzz/some.py", "--count", "6"])
    with pytest.raises(SystemExit) as ended:
        hunt.main(check, 5)
    out = capsys.readouterr().out
    assert ended.value.code == 1
    assert "three is wrong   [python fuzz/some.py --seed 3]" in out
    assert "ZeroDivisionError" in out
    assert "6 seeds from 0, 2 findings" in out


def test_the_judge_knows_a_closed_form():
    """Phi, its gradient and y* of a quadratic program, against algebra."""

    def outer(words):
        return lambda x, y, b: ((y - 1) ** 2).sum() / 2 + (x**2).sum() / 2

    def inner(words):
        return lambda x, y, b: ((y - 3 * x) ** 2).sum() / 2 + 0 * b["t"].sum()

    rows = {"t": np.zeros(2)}
    program = made_programs.Program(
        "", outer, inner, np.ones(2), np.zeros(2), (rows, rows), True, True
    )
    judge = programs.Judge(program)
    x = np.array([0.5, -1.0])
    value, gradient = judge.phi(x)
    np.testing.assert_allclose(judge.solve(x, np.zeros(2)), 3 * x)
    np.testing.assert_allclose(value, ((3 * x - 1) ** 2).sum() / 2 + (x**2).sum() / 2)
    np.testing.assert_allclose(gradient, 3 * (3 * x - 1) + x)
    np.testing.assert_allclose(judge.better(x, None), 0.1, rtol=1e-6)


@pytest.mark.parametrize("name", targets.TARGETS)
def test_a_good_file_is_read(name, tmp_path, monkeypatch):
    """A target that refuses every file finds nothing in damaged ones."""
    refused = []

    @contextmanager
    def watched():
        try:
            yield
        except ValueError as error:
            refused.append(str(error))
        else:
            refused.append("")

    good = targets.seeds(name, tmp_path)[0]
    monkeypatch.setattr(targets, "sentence_or_result", watched)
    targets.TARGETS[name](tmp_path, good)
    assert "" in refused, refused


def test_a_changed_cell_is_a_finding(tmp_path):
    """One letter, a lost row, another line end, and a label that nobody decided on."""
    given = tables.Given(b"a,label\r\n01,x\r\n02,y\r\n03,x\r\n", ",")
    (tmp_path / "suspects.csv").write_bytes(b"_row,a,label\r\n1,02,y\r\n")
    right = b"a,label\r\n01,x\r\n03,x\r\n"
    changed = right.replace(b"03,x", b"03,y")

    def compare(cleaned, decided=None):
        (tmp_path / "cleaned.csv").write_bytes(cleaned)
        tables.compare(given, "clean", tmp_path, decided)

    compare(right)
    compare(changed, {2: {"y"}})
    lost, unix = b"a,label\r\n01,x\r\n", right.replace(b"\r", b"")
    wrong = [(right.replace(b"01", b"1"), None), (lost, None), (unix, None), (changed, None)]
    for cleaned, decided in [*wrong, (right, {2: {"y"}}), (right, {1: {"x"}})]:
        with pytest.raises(hunt.FoundError):
            compare(cleaned, decided)
