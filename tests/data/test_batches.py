"""The index streams: every row once an epoch, the same whatever the chunks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import untuned
from untuned.data.batches import draw
from untuned.data.streams import Halves, Stream, alike_halves, uniforms
from untuned.ops import get

SIZES = st.integers(1, 40).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


@given(sizes=SIZES, seed=st.integers(0, 2**32), epochs=st.integers(1, 3))
@settings(deadline=None)
def test_every_epoch_visits_every_row_once(sizes, seed, epochs):
    rows, batch_size = sizes
    stream = Stream(rows, batch_size, seed, 0)
    count = -(-rows * epochs // batch_size)
    seen = stream.batches(0, count).reshape(-1)[: rows * epochs].reshape(epochs, rows)
    assert np.array_equal(np.sort(seen, axis=1), np.tile(np.arange(rows), (epochs, 1)))


@given(sizes=SIZES, cuts=st.lists(st.integers(1, 9), max_size=5))
@settings(deadline=None)
def test_chunks_do_not_change_the_stream(sizes, cuts):
    rows, batch_size = sizes
    whole = Stream(rows, batch_size, 5, 1).batches(0, sum(cuts))
    # A new stream for each chunk, as after a restart.
    starts = np.cumsum([0, *cuts])
    parts = [
        Stream(rows, batch_size, 5, 1).batches(start, count)
        for start, count in zip(starts, cuts, strict=False)
    ]
    assert np.array_equal(np.concatenate([whole[:0], *parts]), whole)


@given(sizes=SIZES, cuts=st.lists(st.integers(1, 9), max_size=5))
@settings(deadline=None)
def test_halves_take_turns_and_never_mix(sizes, cuts):
    rows, batch_size = sizes[0] + 1, sizes[1]
    labels = np.random.default_rng(rows).integers(0, 3, rows)
    # Numbers of the rows tell them apart, and are no labels.
    parts = alike_halves([np.arange(rows), np.eye(3)[labels]])
    assert sorted(np.concatenate(parts)) == list(range(rows))
    counts = [np.bincount(labels[part], minlength=3) for part in parts]
    assert np.abs(counts[0] - counts[1]).max() <= 1
    whole = Halves(parts, batch_size, 5).batches(0, sum(cuts))
    for k, batch in enumerate(whole):
        assert np.isin(batch, parts[k % 2]).all()
    starts = np.cumsum([0, *cuts])
    pieces = [
        Halves(parts, batch_size, 5).batches(start, count)
        for start, count in zip(starts, cuts, strict=False)
    ]
    assert np.array_equal(np.concatenate([whole[:0], *pieces]), whole)


def test_epochs_and_sides_and_seeds_differ():
    stream = Stream(1000, 1000, 0, 0)
    first, second = stream.batches(0, 2).reshape(2, -1)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, Stream(1000, 1000, 0, 1).batches(0, 1).reshape(-1))
    assert not np.array_equal(first, Stream(1000, 1000, 1, 0).batches(0, 1).reshape(-1))
    assert not np.array_equal(first, np.arange(1000))


def test_a_run_draws_each_row_as_often_as_it_should(library):
    """Counted by the data themselves: f sums the rows it is given, in a run of three epochs."""
    rows, batch_size = 12, 4
    asarray = get(library).asarray
    marks = 2.0 ** np.arange(rows)
    seen = []

    def outer(x, y, batch):
        return (y * 0).sum() + batch.sum()

    untuned.minimize(
        outer,
        lambda x, y: ((y - x) ** 2).sum(),
        asarray(np.zeros(1)),
        asarray(np.zeros(1)),
        method="s-tfbo",
        outer_data=marks,
        batch_size=batch_size,
        max_steps=9,
        eval_every=1,
        callback=lambda snapshot: seen.append(snapshot.record["outer"]),
    )
    epochs = np.array(seen).reshape(3, 3).sum(axis=1)
    assert epochs.tolist() == [marks.sum()] * 3


@pytest.mark.parametrize("k", [0, 1])
def test_a_plain_side_serves_the_same_rows_every_time(k):
    rows = {"a": np.arange(3)}
    assert draw(get("jax"), rows, k) is rows


@given(cuts=st.lists(st.integers(1, 900), max_size=5))
@settings(deadline=None)
def test_chunks_do_not_change_the_random_numbers(cuts):
    whole = uniforms(3, 0, sum(cuts))
    starts = np.cumsum([0, *cuts])
    parts = [uniforms(3, start, n) for start, n in zip(starts, cuts, strict=False)]
    assert np.array_equal(np.concatenate([whole[:0], *parts]), whole)
    assert np.all((whole >= 0) & (whole < 1))
