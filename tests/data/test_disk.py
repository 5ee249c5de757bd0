"""Data that stay on disk: every row once an epoch, runs as in memory, and what is refused."""

import numpy as np
import pandas
import pytest
import torch

import untuned
from libraries import as_numpy
from untuned.data.disk import sources, windows
from untuned.data.disk.direct import FileReader
from untuned.data.disk.parquet import ParquetSource
from untuned.data.disk.windows import Windows

FEATURES = 4


def made(rows, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((rows, FEATURES))
    return features, features @ np.arange(1.0, FEATURES + 1) + 0.1 * rng.standard_normal(rows)


def mapped(folder, name, array):
    np.save(folder / name, array)
    return np.load(folder / f"{name}.npy", mmap_mode="r")


def outer(x, y, batch):
    features, target = batch
    return ((features @ y - target) ** 2).mean()


def inner(x, y, batch):
    return outer(x, y, batch) + ((x.exp() if isinstance(x, torch.Tensor) else jnp_exp(x))
                                 * y**2).sum()  # fmt: skip


def jnp_exp(x):
    import jax.numpy as jnp

    return jnp.exp(x)


def run(library, inner_data, outer_data, **options):
    start = np.full(FEATURES, -1.0), np.zeros(FEATURES)
    if library == "torch":
        start = tuple(map(torch.tensor, start))
    settings = {"method": "s-tfbo", "batch_size": (8, 6), "max_steps": 50, "eval_every": 10}
    return untuned.minimize(
        outer, inner, *start, inner_data=inner_data, outer_data=outer_data, **(settings | options)
    )


def assert_same(ours, expected):
    assert ours.steps == expected.steps
    assert np.array_equal(as_numpy(ours.x), as_numpy(expected.x))
    assert np.array_equal(as_numpy(ours.state.y), as_numpy(expected.state.y))


@pytest.fixture
def small(monkeypatch):
    """Blocks, buffers and windows of a few rows, as if rows were huge."""
    row = 8 * (FEATURES + 1)
    monkeypatch.setattr(sources, "BLOCK_BYTES", 5 * row)
    monkeypatch.setattr(windows, "BUFFER_BYTES", 16 * row)


@pytest.mark.long
def test_a_run_on_little_data_is_the_one_in_memory(library, tmp_path, monkeypatch):
    """Bit for bit: one buffer holds all rows, however many blocks there are."""
    monkeypatch.setattr(sources, "BLOCK_BYTES", 100)
    sides = [made(37), made(23, 1)]
    there = [
        tuple(mapped(tmp_path, f"{k}{j}", leaf) for j, leaf in enumerate(side))
        for k, side in enumerate(sides)
    ]
    expected = run(library, *sides)
    assert_same(run(library, *there), expected)
    assert_same(run(library, there[0], sides[1]), expected)  # one of them in memory


@pytest.mark.parametrize("method", ["d-tfbo", "soba", "auto", "amigo", "ttsa"])
def test_methods_on_disk(method, tmp_path):
    sides = [made(37), made(23, 1)]
    there = tuple(mapped(tmp_path, f"{j}", leaf) for j, leaf in enumerate(sides[0]))
    solver = untuned.solvers.get(method)
    solver = solver(inner_steps=3, linear_steps=2) if method == "d-tfbo" else solver()
    options = {"method": solver, "max_steps": 12, "eval_every": 5}
    assert_same(run("torch", there, sides[1], **options), run("torch", *sides, **options))


def numbered(rows, folder, seed, draws=2):
    """Windows of a file whose rows hold their own number, in batches of 3."""
    numbers = np.repeat(np.arange(float(rows))[:, None], FEATURES + 1, axis=1)
    source = sources.MappedSource(_ops(), mapped(folder, "numbers", numbers), "data")
    return Windows(source, 3, draws, seed, 0, "float64")


def visited(window):
    return window.rows[window.order][: 3 * window.batches, 0].astype(int)


def positions(rows, folder, seed):
    """The rows of two epochs and a little more, in their order."""
    stream = numbered(rows, folder, seed)
    found, first = [], 0
    while sum(map(len, found)) < 2 * rows:
        window = stream.window(first)
        assert window.first == first
        assert window.batches >= 2
        found.append(visited(window))
        first += window.batches
    stream.close()
    return np.concatenate(found)


def _ops():
    from untuned import ops

    return ops.get("torch")


@pytest.mark.parametrize("rows", [3, 16, 83, 200])
def test_every_row_once_before_any_twice(rows, small, tmp_path):
    found = positions(rows, tmp_path, 1)
    for epoch in (found[:rows], found[rows : 2 * rows]):
        assert sorted(epoch) == list(range(rows))
    if rows > 16:
        assert not np.array_equal(found[:rows], found[rows : 2 * rows])
        # From all over a buffer, and blocks from all over the file.
        assert np.abs(np.diff(found[:rows])).mean() > 3
        assert np.ptp(found[:16]) > 20
    assert not np.array_equal(found, positions(rows, tmp_path, 2))


def test_windows_from_anywhere_are_the_same_stream(small, tmp_path):
    whole = positions(83, tmp_path, 0)
    stream = numbered(83, tmp_path, 0)
    for first in (30, 7, 8, 26, 0):
        found = visited(stream.window(first))
        assert np.array_equal(found, whole[3 * first : 3 * first + len(found)])
    stream.close()


@pytest.mark.parametrize("free", [0, 2**40])
def test_any_range_of_a_file_is_read(free, tmp_path, monkeypatch):
    """Past the page cache, where memory is short, and through it."""
    monkeypatch.setattr("untuned.util.memory.available", lambda: free)
    content = np.random.default_rng(0).bytes(30_001)
    (tmp_path / "file").write_bytes(content)
    reader = FileReader(tmp_path / "file")
    for offset, size in ((0, 10), (4095, 2), (4096, 8192), (1, 30_000), (30_000, 1), (12_345, 0)):
        assert bytes(reader.read(offset, size)) == content[offset : offset + size]
    with pytest.raises(ValueError, match="has become shorter"):
        reader.read(30_000, 2)


@pytest.mark.long
def test_a_run_on_disk_can_be_stopped_and_resumed(library, small, tmp_path):
    sides = [made(90), made(70, 1)]
    there = [
        tuple(mapped(tmp_path, f"{k}{j}", leaf) for j, leaf in enumerate(side))
        for k, side in enumerate(sides)
    ]
    whole = run(library, *there)
    options = {"checkpoint": tmp_path / "run", "callback": lambda snapshot: snapshot.step >= 20}
    assert run(library, *there, **options).steps == 20
    assert_same(run(library, *there, checkpoint=tmp_path / "run"), whole)


def frame(rows):
    features, target = made(rows)
    return pandas.DataFrame(features, columns=list("abcd")).assign(t=target)


@pytest.mark.long
def test_parquet(library, tmp_path):
    frame(37).to_parquet(tmp_path / "a.parquet", row_group_size=5)
    columns = {"D": list("abcd"), "t": "t"}
    named = lambda function: lambda x, y, batch: function(x, y, (batch["D"], batch["t"]))
    features, target = made(37)
    start = np.full(FEATURES, -1.0), np.zeros(FEATURES)
    if library == "torch":
        start = tuple(map(torch.tensor, start))
    options = {"method": "s-tfbo", "batch_size": 8, "max_steps": 30, "eval_every": 10}
    rows = untuned.parquet(tmp_path / "a.parquet", columns)
    expected = {"D": features, "t": target}
    ours, plain = (
        untuned.minimize(named(outer), named(inner), *start, inner_data=data,
                         outer_data=expected, **options)
        for data in (rows, expected)
    )  # fmt: skip
    assert_same(ours, plain)


@pytest.mark.long
def test_a_damaged_page_of_a_parquet_file_is_one_sentence(tmp_path):
    path = tmp_path / "rows.parquet"
    frame = pandas.DataFrame({"t": np.arange(5000.0)})
    frame.to_parquet(path, compression=None)
    content = bytearray(path.read_bytes())
    content[4:40] = b"\xff" * 36  # the header of the first page
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"inner_data holds rows 0 and on .* give a file that is"):
        ParquetSource(untuned.parquet(path), "inner_data")


def test_columns_say_which_array_they_make():
    with pytest.raises(ValueError, match=r"columns=\['age'\] does not say .* expected a dict"):
        untuned.parquet("train.parquet", ["age"])


def test_a_column_may_be_whole_in_one_file_and_not_in_another(tmp_path):
    parts = pandas.DataFrame({"a": [1, 2], "t": [0, 1]}), pandas.DataFrame({"a": [1.5], "t": [1]})
    for number, part in enumerate(parts):
        part.to_parquet(tmp_path / f"{number}.parquet")
    source = sources.source_of(None, str(tmp_path), "inner_data")
    rows = sources.rows_of(source, 3)
    assert rows["a"].tolist() == [1, 2, 1.5]
    assert rows["t"].dtype == np.int64
    frame(3).assign(a="word", t=0).to_parquet(tmp_path / "2.parquet")
    with pytest.raises(ValueError, match="in column 'a'; expected numbers"):
        sources.source_of(None, str(tmp_path), "inner_data")


def test_a_folder_of_parquet_files_by_its_path_alone(tmp_path):
    frame(20).iloc[:12].to_parquet(tmp_path / "a.parquet")
    frame(20).iloc[12:].to_parquet(tmp_path / "b.parquet")
    f = lambda x, y, batch: ((batch["a"] * y - batch["t"]) ** 2).mean()
    g = lambda x, y, batch: f(x, y, batch) + (x**2 * y**2).sum()
    options = {"method": "s-tfbo", "max_steps": 10, "outer_data": frame(20).to_dict("series")}
    options["outer_data"] = {name: c.to_numpy() for name, c in options["outer_data"].items()}
    start = (np.ones(1), np.zeros(1))
    ours = untuned.minimize(f, g, *start, inner_data=str(tmp_path), batch_size=(5, None), **options)
    data = options["outer_data"]
    plain = untuned.minimize(f, g, *start, inner_data=data, batch_size=(5, None), **options)
    assert_same(ours, plain)
    # Used whole, they are read whole.
    ours = untuned.minimize(f, g, *start, inner_data=str(tmp_path), **options)
    assert_same(ours, untuned.minimize(f, g, *start, inner_data=data, **options))


def refused(message, inner_data, **options):
    with pytest.raises(ValueError, match=message):
        run("torch", inner_data, made(23, 1), **options)


def test_refusals(tmp_path, monkeypatch):
    rows = tuple(mapped(tmp_path, str(k), leaf) for k, leaf in enumerate(made(40)))
    refused("saba needs fixed blocks of rows, and rows on disk", rows, method="saba")
    refused("vrbo needs all rows from time to time", rows, method="vrbo")
    refused("batch_size=41 is more than the 40 rows", rows, batch_size=(41, 5))
    refused("no Parquet file; expected the path", str(tmp_path / "nowhere.parquet"))
    (tmp_path / "text.parquet").write_text("no")
    refused("could not be read as Parquet", tmp_path / "text.parquet")
    frame(9).assign(t="word").to_parquet(tmp_path / "words.parquet")
    refused("in column 't'; expected numbers", tmp_path / "words.parquet")
    frame(9).assign(t=[1.0, None] + 7 * [2.0]).to_parquet(tmp_path / "gaps.parquet")
    refused("1 missing values in column 't'", tmp_path / "gaps.parquet")
    refused("has no column 'z'", untuned.parquet(tmp_path / "gaps.parquet", {"D": "z"}))
    features, target = made(40)
    features[33, 2] = np.nan
    rows = (mapped(tmp_path, "bad", features), target)
    refused("The data on disk have nan in row 33", rows)
    monkeypatch.setattr("untuned.util.memory.available", lambda: 1000)
    refused("1,?0?.0 GB of memory are free|give batch_size", rows, batch_size=None)
