"""SABA: its memories, its blocks, and the linear convergence that SOBA does not have."""

from typing import ClassVar

import jax
import numpy as np
import optree
import pytest

import untuned
from libraries import as_numpy, given
from reference.coupled import coupled
from untuned.data.streams import block_count, blocks
from untuned.ops import get
from untuned.solvers import SABA, SOBA

SEED, SIZES = 4, (7, 5)
ROWS = (31, 24)  # 31 rows make 5 blocks, one of 7 and four of 6; 24 make four of 5 and one of 4


class ConstantSOBA(SOBA):
    """SOBA with constant steps, as SABA's are."""

    exponents: ClassVar = (0.0, 0.0, 0.0)


def problem_of(dim=4):
    return coupled(3, *ROWS, dim)


def run(problem, library="jax", sizes=SIZES, **options):
    task = given(problem, library)
    settings = {"method": SABA(step_size=0.1), "max_steps": 30, "eval_every": 1, "seed": SEED}
    return untuned.minimize(*task.positional, **task.data, **(settings | options), batch_size=sizes)


def leaves_of(state):
    return [as_numpy(leaf) for leaf in optree.tree_leaves(state, namespace="")]


def shares(rows, size):
    count = block_count(rows, size)
    return np.array([len(part) for part in np.array_split(np.arange(rows), count)]) / rows


def stacked(memory, library):
    """The memories of all blocks, with a leading axis, on either library."""
    if library == "jax":
        written = jax.tree.map(np.array, memory.rows.written)
        for leaf, last in zip(*map(leaves_of, (written, memory.rows.last)), strict=True):
            leaf[int(memory.rows.place)] = last
        return leaves_of(written)
    return [np.stack(part) for part in zip(*map(leaves_of, memory.rows), strict=True)]


@pytest.mark.long
def test_averages_are_the_weighted_means_of_the_memories(library):
    states = []
    run(problem_of(), library, callback=lambda snapshot: states.append(snapshot.state))
    assert len(states) == 30
    for state in states:
        sides = zip((state.inner, state.outer), ROWS, SIZES, strict=True)
        for memory, rows, size in sides:
            means = [np.tensordot(shares(rows, size), m, 1) for m in stacked(memory, library)]
            for mean, average in zip(means, leaves_of(memory.average), strict=True):
                np.testing.assert_allclose(average, mean, rtol=1e-10, atol=1e-12)


@pytest.mark.long
def test_the_first_step_is_along_the_full_gradients(library):
    problem = problem_of()
    x0, y0 = problem.x0, problem.y0
    state = run(problem, library, method=SABA(step_size=0.1, outer_ratio=2.0), max_steps=1).state
    np.testing.assert_allclose(as_numpy(state.y), y0 - 0.1 * problem.g_y(x0, y0), rtol=1e-12)
    np.testing.assert_allclose(as_numpy(state.v), 0.1 * problem.f_y(x0, y0), rtol=1e-12)
    np.testing.assert_allclose(as_numpy(state.x), x0 - 0.05 * problem.f_x(x0, y0), rtol=1e-12)


def test_directions_are_not_inflated_in_the_first_epochs():
    """While nothing moves, every direction is the full gradient; from empty memories it is not."""
    problem = problem_of()
    history = run(problem, method=SABA(step_size=1e-12), max_steps=15).history
    expected = np.linalg.norm(problem.g_y(problem.x0, problem.y0))
    np.testing.assert_allclose(history["inner_grad_norm"], expected, rtol=1e-9)


def solution(problem):
    """x, y and v of the solution: all maps are linear, so three small solves give it."""
    n, m, dim = problem.n_inner, problem.n_outer, len(problem.x0)
    hessian = problem.a.T @ problem.a / n + np.eye(dim)
    outer = problem.e.T @ problem.e / m
    slope = -problem.c.mean() * np.linalg.inv(hessian)
    shift = np.linalg.solve(hessian, problem.a.T @ problem.b / n)
    s, right = problem.s.mean(), problem.e.T @ problem.t / m
    curvature = problem.d.mean() * np.eye(dim) + 2 * s * slope + slope @ outer @ slope
    assert np.linalg.eigvalsh(curvature)[0] > 0.5
    x = -np.linalg.solve(curvature, s * shift + slope @ (outer @ shift - right))
    y = shift + slope @ x
    return x, y, np.linalg.solve(hessian, problem.f_y(x, y))


@pytest.mark.long
def test_converges_linearly_where_soba_stalls():
    problem = problem_of()
    truth = np.concatenate(solution(problem))

    def distances(method):
        found = []
        run(
            problem,
            method=method,
            max_steps=2000,
            eval_every=200,
            callback=lambda snapshot: found.append(
                np.linalg.norm(np.concatenate([snapshot.x, snapshot.y, snapshot.v]) - truth)
            ),
        )
        return np.array(found)

    noisy = distances(ConstantSOBA(step_size=0.02))
    reduced = distances(SABA(step_size=0.02))
    assert noisy.min() > 1e-3  # its noise floor
    assert reduced[-1] < 1e-9
    # Linear: every 200 steps gain about as much as any others, until rounding.
    gains = np.diff(np.log(reduced[reduced > 1e-10]))
    assert len(gains) >= 3
    assert gains.max() < 0.5 * gains.min() < -1


@pytest.mark.long
def test_one_block_is_soba_with_constant_steps(library):
    problem = problem_of()
    ours = run(problem, library, sizes=None)
    plain = run(problem, library, sizes=None, method=ConstantSOBA(step_size=0.1))
    for name in ("x", "y", "v"):
        np.testing.assert_allclose(
            *(as_numpy(getattr(result.state, name)) for result in (ours, plain)), atol=1e-12
        )
    assert ours.counts == plain.counts


def test_the_first_step_is_counted_block_by_block(library):
    counts = run(problem_of(), library, max_steps=10).counts
    assert counts == {"outer_grad": 5 + 9, "inner_grad": 5 + 9, "hvp": 5 + 9, "cross": 5 + 9}


@pytest.mark.parametrize(("rows", "size"), [(31, 7), (24, 5), (12, 4), (7, 7), (13, 12), (5, 1)])
def test_blocks_hold_every_row_once_in_nearly_equal_sizes(rows, size):
    table = blocks(rows, size, 0, 1)
    longer = rows - len(table) * (table.shape[1] - 1)
    held = [row if b < longer else row[:-1] for b, row in enumerate(table)]
    assert sorted(np.concatenate(held).tolist()) == list(range(rows))
    sizes = [len(row) for row in held]
    assert max(sizes) <= size
    assert max(sizes) - min(sizes) <= 1
    assert len(held) == -(-rows // size)
    assert not np.array_equal(blocks(100, 10, 0, 1), blocks(100, 10, 0, 0))
    assert not np.array_equal(blocks(100, 10, 0, 1), blocks(100, 10, 1, 1))


def test_a_run_visits_every_row_once_an_epoch(library):
    """Counted by the data themselves: f sums the rows of the block it is given."""
    rows, count = 11, 3
    asarray = get(library).asarray
    marks = 2.0 ** np.arange(rows)
    seen = []
    untuned.minimize(
        lambda x, y, batch: (y * 0).sum() + batch.sum(),
        lambda x, y: ((y - x) ** 2).sum(),
        asarray(np.zeros(1)),
        asarray(np.zeros(1)),
        method="saba",
        outer_data=marks,
        batch_size=4,
        max_steps=1 + 4 * count,
        eval_every=1,
        callback=lambda snapshot: seen.append(snapshot.record["outer"]),
    )
    epochs = np.array(seen[1:]).reshape(4, count)
    assert epochs.sum(axis=1).tolist() == [marks.sum()] * 4
    held = [f"{int(total):011b}".count("1") for total in epochs[0]]
    assert sorted(held) == [3, 4, 4]
    # The same blocks come back, in another order.
    assert len({tuple(sorted(epoch)) for epoch in epochs.tolist()}) == 1
    assert len({tuple(epoch) for epoch in epochs.tolist()}) > 1


@pytest.mark.parametrize("sizes", [None, SIZES])
@pytest.mark.long
def test_results_do_not_depend_on_chunks_or_restarts(library, sizes, tmp_path):
    problem = problem_of()
    whole = run(problem, library, sizes)
    path = tmp_path / "run.safetensors"
    stopped = run(
        problem, library, sizes, eval_every=6, checkpoint=path, callback=lambda s: s.step >= 12
    )
    assert (stopped.status, stopped.steps) == ("callback", 12)
    resumed = run(problem, library, sizes, eval_every=6, checkpoint=path)
    for other in (run(problem, library, sizes, eval_every=7), resumed):
        for ours, theirs in zip(leaves_of(other.state), leaves_of(whole.state), strict=True):
            assert np.array_equal(ours, theirs)
        assert other.counts == whole.counts


@pytest.mark.long
def test_jax_and_torch_make_the_same_steps():
    ours, theirs = (run(problem_of(), library, max_steps=200) for library in ("jax", "torch"))
    for name in ("x", "y", "v"):
        pair = (as_numpy(getattr(result.state, name)) for result in (ours, theirs))
        np.testing.assert_allclose(*pair, rtol=0, atol=1e-9)
    for name in set(ours.history) - {"seconds"}:
        np.testing.assert_allclose(
            ours.history[name], theirs.history[name], rtol=1e-6, atol=1e-9, err_msg=name
        )


def test_memories_that_would_not_fit_are_refused(library):
    asarray = get(library).asarray
    with pytest.raises(ValueError, match=r"SABA would need 7\.5 GiB .* larger batch_size"):
        untuned.minimize(
            lambda x, y: (y**2).sum(),
            lambda x, y, batch: ((y - x.sum()) ** 2).sum() + batch.sum(),
            asarray(np.zeros(100_000, np.float32)),
            asarray(np.zeros(2, np.float32)),
            method="saba",
            inner_data=np.ones(20_000),
            batch_size=1,
        )
    with pytest.raises(ValueError, match="SABA was given inner_slots=0"):
        SABA(inner_slots=0)
