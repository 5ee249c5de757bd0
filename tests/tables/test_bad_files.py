"""Random bytes, random tables and good files spoilt: the command line says a sentence or works.

A few examples in the default suite, the same every time; `make fuzz` makes thousands of new ones,
and lets atheris search the same targets.
"""

import io
import os
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import standins
import targets
from refusals import MANY, examples
from untuned import cli

PIECES = [
    b"", b",", b"\n", b'"', b"\r", b"\0", b"\xff\xfe", b"null", b"-1", b"1e999", b"nan", b"[]",
    b"{}", b"<b>", b"../x", b"9" * 30, b"True", b";", b"\t", "\u2028é".encode(),
]  # fmt: skip


# What is drawn does not depend on the file, so that a failure can be drawn again.
PLACES = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.sampled_from([0, 1, 2, 7, 40, 300]),
        st.sampled_from(["flip", "replace", "cut", "double"]),
        st.sampled_from(PIECES) | st.binary(max_size=9),
        st.integers(0, 7),
    ),
    min_size=1,
    max_size=6,
)


def spoil(good, places):
    """A good file with a few places changed: bits flipped, pieces put in, cut out or doubled."""
    content = bytearray(good)
    for share, length, kind, piece, bit in places:
        first = round(share * len(content))
        last = min(len(content), first + length)
        if kind == "flip" and first < len(content):
            content[first] ^= 1 << bit
        elif kind == "replace":
            content[first:last] = piece
        elif kind == "cut":
            del content[first : len(content) if last == first else last]
        else:
            content[first:first] = content[first:last]
    return bytes(content)


def spoilt(contents):
    return st.builds(spoil, st.sampled_from(contents), PLACES)


SEEDS: dict[str, list[bytes]] = {}


@pytest.fixture(scope="module", autouse=True)
def seeds(tmp_path_factory):
    for name in targets.TARGETS:
        SEEDS[name] = targets.seeds(name, tmp_path_factory.mktemp(name))


@pytest.mark.parametrize("name", targets.TARGETS)
@pytest.mark.long
def test_a_file_of_any_bytes(name, tmp_path):
    slow = name in ("result", "run-table", "history")  # a whole page is made of a good one

    @examples(5 if slow else 25)
    @given(st.binary(max_size=60) | spoilt(SEEDS[name]) | spoilt(SEEDS[name]))
    def run(content):
        targets.TARGETS[name](tmp_path, content)

    run()


@st.composite
def tables(draw):
    """Tables of every kind of column, right and wrong."""
    rows = draw(st.sampled_from([0, 1, 3, 10, 40]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    kinds = [
        rng.standard_normal(rows), rng.standard_normal(rows) * 1e300, rng.integers(0, 3, rows),
        np.arange(rows), rng.choice(["a", "b", "<b>"], rows), np.full(rows, "same"),
        np.full(rows, np.nan), np.array([None, "x"] * rows, object)[:rows],
        rng.choice([True, False], rows), pd.date_range("2020", periods=rows),
        np.array([[1, 2], []] * rows, object)[:rows] if rows else np.zeros(0),
        np.where(rng.random(rows) < 0.2, np.inf, 1.5), rng.random(rows).astype(np.float16),
        pd.Categorical(rng.choice(["u", "v"], rows)), pd.timedelta_range("1s", periods=rows),
        rng.integers(0, 2**63 - 1, rows, dtype=np.int64), np.array([b"x"] * rows, object),
        1e-320 * rng.random(rows),
    ]  # fmt: skip
    count = draw(st.integers(1, 5))
    words = ["a", "b", "", " ", "1", "é", "<i>", "../x", "row", "_row", "x,y", "n\nm"]
    names = st.sampled_from(words)
    frame = pd.DataFrame()
    for name in draw(st.lists(names, min_size=count, max_size=count, unique=True)):
        frame[name] = draw(st.sampled_from(kinds))
    return frame


def written(frame, kind):
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            frame.to_parquet(content) if kind == "parquet" else frame.to_csv(content, index=False)
        except (TypeError, ValueError, OSError, NotImplementedError):  # what Parquet cannot hold
            return frame.astype(str).to_csv(index=False).encode()
    return content.getvalue()


def command(arguments, folder, patch):
    """Run the command line here; gives the exit code and what was printed on standard error."""
    out, err = io.StringIO(), io.StringIO()
    patch.setattr(sys, "argv", ["untuned", *arguments])
    patch.setattr(sys, "stdout", out)
    patch.setattr(sys, "stderr", err)
    patch.chdir(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(SystemExit) as ended:
            cli.main()
    return ended.value.code, err.getvalue()


@pytest.mark.long
@pytest.mark.parametrize("name", ["clean", "regularize", "coreset"])
def test_a_command_on_any_table(name, tmp_path_factory):
    """By estimators that fit in no time, but where thousands of examples are asked for."""

    @examples(12)
    @given(
        tables(),
        st.sampled_from(["csv", "parquet"]),
        st.none() | PLACES,
        st.booleans(),
        st.integers(0, 4),
        st.integers(0, 9),
    )
    def run(frame, kind, places, is_trusted, label, luck):
        content = written(frame, kind)
        folder = tmp_path_factory.mktemp("any")
        (folder / "train").write_bytes(spoil(content, places or []))
        (folder / "trusted").write_bytes(written(frame.iloc[::-1], kind))
        arguments = [name, "train", "--label", str(frame.columns[label % len(frame.columns)])]
        arguments += ["--size", "3"] if name == "coreset" else []
        arguments += ["--trusted", "trusted"] if name == "clean" and is_trusted else []
        with pytest.MonkeyPatch.context() as patch:
            if MANY == 1 or luck:
                standins.install(patch)
            code, err = command([*arguments, "--max-seconds", "5"], folder, patch)
        left = {path.name for path in folder.iterdir()} - {"train", "trusted"}
        if code == 0:
            assert left == {f"untuned-{name}"}
            assert (folder / f"untuned-{name}" / "report.html").stat().st_size > 1000
        else:
            assert (code, left) == (2, set())
            assert err.startswith("untuned: ")
            assert err.count("\n") == 1, err
            assert targets.is_one_sentence(err.strip()), err

    run()


EVERY_BYTE = """
import sys
from pathlib import Path
import targets
from untuned.tables import files
good, path = Path(sys.argv[1]).read_bytes(), Path(sys.argv[2])
for place in range(len(good) - 8 - int.from_bytes(good[-8:-4], "little"), len(good)):
    path.write_bytes(good[:place] + bytes([good[place] ^ 1]) + good[place + 1 :])
    with targets.sentence_or_result():
        files.read(path)
"""


@pytest.mark.process
def test_no_byte_of_a_parquet_footer_can_end_the_process(tmp_path):
    """Asked about one column of a damaged file, pyarrow did that: no exception, just the end."""
    path = tmp_path / "table.parquet"
    targets.sample_table()[["city"]].to_parquet(path, index=False)
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", EVERY_BYTE, str(path), str(tmp_path / "spoilt")],
        capture_output=True, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-2000:]
