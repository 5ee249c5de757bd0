"""Rows of issue 39 that were open when the fuzzers were written, each as small as it can be."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import tables
import untuned
from refusals import assert_one_sentence

ROWS = [f"{k % 7},{k * k % 11},{'yes' if k * k % 3 else 'no'}" for k in range(33)]
HEAD = "a,b,label"


def given(text: str, separator: str = ",", encoding: str = "utf-8") -> tables.File:
    """A table of a text, and its cells."""
    import csv
    import io

    cells = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    return tables.File(
        text.encode(encoding), cells[0], [row for row in cells[1:] if row], separator, encoding
    )


def comes_back(file: tables.File, tmp_path: Path, name: str = "clean") -> None:
    """A command on the table, and every cell of what it wrote compared."""
    (tmp_path / "table.csv").write_bytes(file.content)
    arguments = [name, "table.csv", "--label", "label", "--out", tables.OUT]
    arguments += ["--size", "9"] if name == "coreset" else []
    code, err = tables.command(arguments, tmp_path, is_quick=True)
    assert (code, err) == (0, "")
    tables.check_text(file, name, tmp_path / tables.OUT)


CELLS = {
    "leading zeros": ["01002", "01003", "99999"],
    "a country": ["NA", "DE", "None"],
    "a long number": ["12345678901234567", "", "12345678901234569"],
    "truth": ["TRUE", "FALSE"],
    "zeros at the end": ["1.50", "2.00"],
    "a sign": ["+1", "-1", "+0"],
}


@pytest.mark.parametrize("name", ["clean", "coreset"])
@pytest.mark.parametrize("kind", CELLS)
def test_row_2_cells_come_back(kind, name, tmp_path):
    cells = CELLS[kind]
    rows = [f"{cells[k % len(cells)]},{row}" for k, row in enumerate(ROWS)]
    comes_back(given("\n".join([f"odd,{HEAD}", *rows, ""])), tmp_path, name)


@pytest.mark.parametrize("label", [("001", "002"), ("TRUE", "FALSE"), ("true", "false")])
def test_row_2_labels_come_back(label, tmp_path):
    rows = [f"{k % 7},{k % 5},{label[k % 2]}" for k in range(30)]
    comes_back(given("\n".join([HEAD, *rows, ""])), tmp_path)


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_row_2_separators_come_back(separator, tmp_path):
    text = "\r\n".join([HEAD, *ROWS, ""]).replace(",", separator)
    comes_back(given(text, separator), tmp_path)


def test_row_2_parquet_keeps_types_and_metadata(tmp_path):
    from decimal import Decimal

    table = pa.table(
        {
            "id": pa.array([None, *range(2**60, 2**60 + 32)]),
            "money": pa.array([Decimal(f"{k}.50") for k in range(33)], pa.decimal128(9, 2)),
            "time": pa.array(range(33), pa.time32("s")),
            "a": [float(k % 7) for k in range(33)],
            "label": ["yes" if k % 2 else "no" for k in range(33)],
        }
    ).replace_schema_metadata({"made": "by hand"})
    pq.write_table(table, tmp_path / "table.parquet")
    table = pq.read_table(tmp_path / "table.parquet")
    arguments = ["clean", "table.parquet", "--label", "label", "--out", tables.OUT]
    assert tables.command(arguments, tmp_path, is_quick=True) == (0, "")
    tables.check_parquet(table, "clean", tmp_path / tables.OUT)


@pytest.mark.parametrize("name", ["None", "NA", "null", "nan"])
def test_row_3_a_class_of_that_name_is_a_class(name, tmp_path):
    rows = [f"{k % 7},{k % 5},{name if k % 2 else 'some'}" for k in range(30)]
    comes_back(given("\n".join([HEAD, *rows, ""])), tmp_path)


def test_row_3_rows_without_label_are_not_lost(tmp_path):
    rows = [row if k % 5 else row.rpartition(",")[0] + "," for k, row in enumerate(ROWS)]
    comes_back(given("\n".join([HEAD, *rows, ""])), tmp_path)


STRANGE = {
    "a footer": lambda rows: [*rows, "Source: census office,,"],
    "units": lambda rows: ["kg,m,", *rows],
    "a space": lambda rows: [*rows, "1\u00a0000,2,"],
    "Arabic digits": lambda rows: [*rows, "\u0661\u0662,2,"],
}


@pytest.mark.parametrize("kind", STRANGE)
def test_row_6_a_strange_cell_in_a_row_without_label(kind, tmp_path):
    numbers = [f"{k + 0.5},{k * 0.25},{'yes' if k % 2 else 'no'}" for k in range(50)]
    comes_back(given("\n".join([HEAD, *STRANGE[kind](numbers), ""])), tmp_path)


def squares(x, y):
    return ((y - x) ** 2).sum()


def test_row_7_large_whole_numbers_do_not_wrap():
    """A timestamp's remainder is another one after it has wrapped to 32 bits."""
    rows = np.arange(2**33, 2**33 + 40)
    weights = np.where(rows % 7 == 3, 5.0, 1.0)
    targets = np.arange(40, dtype=np.float32)

    def g(x, y, b):
        return (jnp.where(b[0] % 7 == 3, 5.0, 1.0) * (y - b[1]) ** 2).mean() + 0 * x.sum()

    zero = np.zeros(1, np.float32)
    try:
        found = untuned.minimize(
            lambda x, y: squares(x, y), g, zero, zero, inner_data=(rows, targets)
        )
    except ValueError as error:
        assert_one_sentence(str(error))
    else:
        assert found.y == pytest.approx(np.average(targets, weights=weights), rel=1e-3)


@pytest.mark.parametrize("library", [np, jnp])
def test_row_8_types_are_those_given(library, tmp_path):
    def g(x, y, b):
        decayed = b[0] @ (y * 0.9 ** jnp.arange(2))
        return ((decayed - b[1]) ** 2).mean() + (jnp.exp(x) * y**2).sum()

    rng = np.random.default_rng(0)
    rows = tuple(map(library.asarray, rng.standard_normal((2, 12, 2)).astype(np.float32)))
    rows = rows[0], rows[1][:, 0]
    zeros = library.zeros(2, "float32")
    options = {"inner_data": rows, "checkpoint": tmp_path / "run", "max_steps": 20}
    start = (lambda x, y: ((y - 1) ** 2).sum() + (x**2).sum(), g, zeros, zeros)
    first = untuned.minimize(*start, **options, callback=lambda seen: seen.step >= 2)
    assert (first.x.dtype, first.y.dtype, first.v.dtype) == (np.float32,) * 3
    assert untuned.minimize(*start, **options).y.dtype == np.float32


def test_leaves_without_axes_stay_of_their_library():
    x = {"a": jnp.zeros(()), "b": jnp.zeros(2)}
    g = lambda x, y: (y - x["a"]) ** 2 + (x["b"] ** 2).sum() * y**2
    found = untuned.minimize(lambda x, y: (y - 1) ** 2, g, x, jnp.zeros(()))
    assert isinstance(found.x["a"], jax.Array)
    assert isinstance(found.y, jax.Array)


UNBOUNDED = {
    "concave": lambda x, y: -(y**2).sum() + (x * y).sum(),
    "linear": lambda x, y: (y * (1 + x**2)).sum(),
}


@pytest.mark.parametrize("zeros", [np.zeros, torch.zeros])
@pytest.mark.parametrize("kind", UNBOUNDED)
def test_row_9_no_minimum_is_no_success(kind, zeros):
    start = zeros(2) + 0.5
    found = untuned.minimize(
        lambda x, y: ((y - 1) ** 2).sum() + (x**2).sum(), UNBOUNDED[kind], start, start
    )
    assert not found.success


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]) * 2**30,) * 2)
from untuned import cli
sys.argv = ["untuned", *sys.argv[2:]]
cli.main()
"""


def limited(arguments, folder, gigabytes=3, may_work=False):
    """A command that may take so much memory; what it said."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(gigabytes), *arguments], cwd=folder, timeout=120,
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode in ((0, 2) if may_work else (2,)), done.stderr
    assert done.returncode == 0 or done.stderr.count("\n") == 1, done.stderr
    return done.stdout + done.stderr


@pytest.mark.process
def test_row_10_a_dictionary_that_unpacks_to_gigabytes(tmp_path):
    words = pa.array(["x" * 2**20]).dictionary_encode()
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(8000, np.int32)), words.dictionary)
    plain = pa.array(np.arange(8000) % 2)
    pq.write_table(pa.table({"word": column, "label": plain}), tmp_path / "t.parquet")
    assert "t.parquet" in limited(["clean", "t.parquet", "--label", "label"], tmp_path)


@pytest.mark.process
def test_row_10_an_archive_that_unpacks_to_gigabytes(tmp_path):
    (tmp_path / "t.csv").write_text("\n".join([HEAD, *ROWS]))
    np.savez_compressed(tmp_path / "f.npz", np.zeros((33, 2**24), np.float32))
    words = limited(["clean", "t.csv", "--label", "label", "--features", "f.npz"], tmp_path)
    assert "memory" in words


@pytest.mark.process
@pytest.mark.parametrize("kind", ["zeros", "fifo"])
def test_row_10_an_image_that_never_ends(kind, tmp_path):
    from PIL import Image

    for name in ("cats", "dogs"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(12):
            place = tmp_path / "images" / name / f"{number}.png"
            pixels = np.random.default_rng(number).integers(0, 255, (8, 8, 3), np.uint8)
            Image.fromarray(pixels).save(place)
    strange = tmp_path / "images" / "cats" / "strange.png"
    strange.symlink_to("/dev/zero") if kind == "zeros" else os.mkfifo(strange)
    assert "strange.png" in limited(["clean", "images"], tmp_path, 4, may_work=True)


@pytest.mark.process
@pytest.mark.parametrize("command", ["clean", "coreset"])
def test_row_10_a_fifo_is_no_table(command, tmp_path):
    os.mkfifo(tmp_path / "t.csv")
    size = ["--size", "5"] if command == "coreset" else []
    assert "t.csv" in limited([command, "t.csv", "--label", "label", *size], tmp_path, 8)


@pytest.mark.process
def test_a_fifo_is_no_checkpoint(tmp_path):
    os.mkfifo(tmp_path / "run")
    code = (
        "import torch, untuned\n"
        "z = torch.zeros(2)\n"
        "f = lambda x, y: ((y - x - 1) ** 2).sum()\n"
        "untuned.minimize(f, f, z, z, max_steps=3, checkpoint='run')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, timeout=60, capture_output=True, text=True
    )
    assert "ValueError" in done.stderr


@pytest.mark.long
def test_row_12_time_is_kept_where_functions_are_slow():
    def slow(x, y):
        time.sleep(0.1)
        return ((y - x) ** 2).sum() + (y**4).sum()

    zeros, begun = torch.ones(3), time.monotonic()
    untuned.minimize(slow, slow, zeros, zeros, max_seconds=1.0)
    assert time.monotonic() - begun < 2.5


def test_row_13_other_byte_orders():
    """Of variables and of rows: taken, or refused in a sentence."""
    zeros = np.zeros(2, ">f4")
    rows = np.arange(6, dtype=">f8").reshape(3, 2), np.arange(3, dtype=">i8")
    g = lambda x, y, b: ((y - x - b[0]) ** 2).mean() + 0 * b[1].sum()
    for method in ("auto", "s-tfbo"):
        try:
            found = untuned.minimize(
                lambda x, y: ((y - 1) ** 2).sum(), g, zeros, zeros, inner_data=rows, method=method,
                max_steps=3,
            )  # fmt: skip
            assert found.x.shape == (2,)
        except ValueError as error:
            assert_one_sentence(str(error))


@pytest.mark.parametrize("name", ["solve", "logdet", "inv"])
def test_row_13_linear_algebra_inside_vmap(name):
    eye = torch.eye(2, dtype=torch.float64)

    def g(x, y):
        matrix = 2 * eye + torch.diag(y**2)
        term = {
            "solve": lambda: torch.linalg.solve(matrix, x) @ y,
            "logdet": lambda: torch.logdet(matrix) + (x * y).sum(),
            "inv": lambda: (torch.linalg.inv(matrix) @ x) @ y,
        }[name]()
        return term + 2 * (y**2).sum()

    solved = lambda x: untuned.argmin(g, x, torch.zeros(2, dtype=torch.float64))
    many = torch.tensor([[0.1, 0.2], [0.3, -0.4]], dtype=torch.float64)
    each = torch.stack([solved(x) for x in many])
    torch.testing.assert_close(torch.vmap(solved)(many), each)


@pytest.mark.parametrize("strategy", ["uniform", "kmeans"])
def test_row_13_what_a_coreset_says_of_classes_is_true(strategy):
    """Every class has a row, or the documentation does not say so of all strategies."""
    from untuned.estimators import CoresetSelector

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 3)), np.array([0] * 57 + [1] * 2 + [2])
    kept = CoresetSelector(size=6, strategy=strategy, random_state=0).fit(X, y).indices_
    told = " ".join(CoresetSelector.__doc__.split())
    assert set(y[kept]) == {0, 1, 2} or "number of classes, every class has a row." not in told


def test_row_13_unseeded_noise_in_g_is_said():
    torch.manual_seed(0)
    drop = torch.nn.functional.dropout
    g = lambda x, y: ((drop(y, 0.5) - x) ** 2).sum() + (y**2).sum()
    start = torch.ones(6, dtype=torch.float64)
    report = untuned.check_problem(lambda x, y: (y**2).sum(), g, start, start)
    assert not report.ok


def test_cells_of_bytes_are_told_of(tmp_path):
    """Not by the words of a decoder."""
    table = pa.table({"bytes": [b"\xff\0"] * 30, "a": [k % 7 for k in range(30)],
                      "label": [f"c{k % 2}" for k in range(30)]})  # fmt: skip
    pq.write_table(table, tmp_path / "table.parquet")
    arguments = ["clean", "table.parquet", "--label", "label", "--out", tables.OUT]
    code, err = tables.command(arguments, tmp_path, is_quick=True)
    assert code == 0 or ("table.parquet" in err and err.endswith(".\n"))


def test_a_dictionary_of_one_word(tmp_path):
    word = pa.array(["x"] * 30).dictionary_encode()
    table = pa.table({"word": word, "a": [k % 7 for k in range(30)],
                      "label": [f"c{k % 2}" for k in range(30)]})  # fmt: skip
    pq.write_table(table, tmp_path / "table.parquet")
    arguments = ["clean", "table.parquet", "--label", "label", "--out", tables.OUT]
    assert tables.command(arguments, tmp_path, is_quick=True) == (0, "")


def test_constant_images_are_no_error(tmp_path):
    """Gradients that hardly change: their squares are zero in float32."""
    from PIL import Image

    for name in ("cats", "dogs"):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(12):
            image = Image.new("RGB", (8, 8), (number, 0, 0))
            image.save(tmp_path / "images" / name / f"{number}.png")
    code, err = tables.command(["clean", "images", "--out", tables.OUT], tmp_path, is_quick=False)
    assert code == 0 or err.count("\n") == 1


def test_an_output_folder_that_is_a_circle_of_links(tmp_path):
    (tmp_path / "t.csv").write_text("\n".join([HEAD, *ROWS]))
    (tmp_path / "out").symlink_to("out")
    arguments = ["clean", "t.csv", "--label", "label", "--out", "out"]
    code, err = tables.command(arguments, tmp_path, is_quick=True)
    assert (code, err.count("\n")) == (2, 1)
