"""Every tuned method against a NumPy twin written from its specification, rows and counts too."""

import dataclasses

import numpy as np
import pytest
import torch

import untuned
from libraries import as_numpy, given
from reference.abo import abo
from reference.aid import aid
from reference.amigo import amigo
from reference.bisls import bisls
from reference.bisps import bisps
from reference.bsa import bsa
from reference.coupled import coupled
from reference.f2sa import f2sa
from reference.f2sa2 import f2sa2
from reference.fsla import fsla
from reference.itd import itd
from reference.maid import maid
from reference.mrbo import mrbo
from reference.problems import cleaning, quadratic, regularization
from reference.saba import saba
from reference.soba import soba
from reference.stocbio import stocbio
from reference.sustain import sustain
from reference.ttsa import ttsa
from reference.vrbo import vrbo
from untuned.data.streams import Stream, blocks, uniforms
from untuned.ops import get
from untuned.solvers import (
    ABO,
    AID,
    BSA,
    DTFBO,
    F2SA,
    F2SA2,
    FSLA,
    ITD,
    MAID,
    MRBO,
    SABA,
    SOBA,
    SUSTAIN,
    TTSA,
    VRBO,
    AmIGO,
    BiSLS,
    BiSPS,
    StocBiO,
)
from untuned.solvers.numerics import conjugate_gradient
from untuned.solvers.numerics.neumann import hia, shia

RATES = {"step_size": 0.12, "outer_ratio": 1.7}
CASES = {
    "abo": (ABO(strong_convexity=0.7, linear_steps=3), abo),
    "abo public code": (
        ABO(strong_convexity=2.0, sum_of="square", inner_steps=4, linear_steps=3),
        abo,
    ),
    "aid": (AID(**RATES, inner_steps=4, linear_steps=3), aid),
    "aid fixed-point": (
        AID(**RATES, inner_steps=4, linear_steps=3, linear_solver="fixed-point"),
        aid,
    ),
    "amigo": (AmIGO(**RATES, inner_steps=4, linear_steps=3), amigo),
    "bisls": (BiSLS(first_x=0.5, first_y=3.0, inner_steps=3, linear_steps=3), bisls),
    "bisls with slack": (BiSLS(delta=0.1, shrink=0.7, inner_steps=2, linear_steps=3), bisls),
    "bisps": (BiSPS(longest_x=0.6, longest_y=0.9, inner_steps=3, linear_steps=3), bisps),
    "bisps bounded": (
        BiSPS(c=0.9, outer_bound=-1.0, inner_bound=-0.5, inner_steps=2, linear_steps=3),
        bisps,
    ),
    "bsa": (BSA(**RATES, inner_steps=4, linear_steps=5), bsa),
    "f2sa": (F2SA(**RATES, inner_steps=3, delta=0.2, lambda0=1.5), f2sa),
    "f2sa-2": (F2SA2(**RATES, inner_steps=3, nu=0.2), f2sa2),
    "fsla": (FSLA(**RATES), fsla),
    "fsla long steps": (FSLA(step_size=1.5, outer_ratio=20.0), fsla),
    "itd": (ITD(**RATES, inner_steps=4), itd),
    "itd one step": (ITD(**RATES, inner_steps=1), itd),
    "maid": (MAID(outer_smoothness=3.0, beta0=1.0), maid),
    "maid rough": (MAID(cross_smoothness=0.5, inverse_smoothness=0.3, eta=0.3, beta0=9.0), maid),
    "mrbo": (MRBO(**RATES, linear_steps=4, eta=0.6), mrbo),
    "mrbo short memory": (MRBO(**RATES, linear_steps=2, eta=3.0), mrbo),
    "saba": (SABA(**RATES), saba),
    "soba": (SOBA(**RATES), soba),
    "stocbio": (StocBiO(**RATES, inner_steps=4, linear_steps=3), stocbio),
    "sustain": (SUSTAIN(**RATES, linear_steps=5, eta=0.6), sustain),
    "ttsa": (TTSA(**RATES, linear_steps=5), ttsa),
    "vrbo": (VRBO(**RATES, inner_steps=3, linear_steps=2, period=4), vrbo),
}
STEPS, SEED, SIZES = 12, 4, (7, 5)


class Rows:
    """The two streams, one batch at a time, as a twin draws them."""

    def __init__(self, problem, sizes):
        self.streams = [
            None if size is None else Stream(rows, size, SEED, side)
            for side, (size, rows) in enumerate(
                zip(sizes, (problem.n_inner, problem.n_outer), strict=True)
            )
        ]
        self.drawn = [0, 0]

    def _next(self, side):
        self.drawn[side] += 1
        stream = self.streams[side]
        return None if stream is None else stream.batches(self.drawn[side] - 1, 1)[0]

    def inner(self):
        return self._next(0)

    def outer(self):
        return self._next(1)


class Blocks:
    """Each side's blocks, and the order in which a twin visits them."""

    def __init__(self, problem, sizes):
        self.inner_blocks, self.inner_slot = self._side(0, problem.n_inner, sizes[0])
        self.outer_blocks, self.outer_slot = self._side(1, problem.n_outer, sizes[1])

    @staticmethod
    def _side(side, rows, size):
        if size is None:
            return [None], lambda: 0
        cut = cut_of(rows, size, side)
        order = iter(Stream(len(cut), 1, SEED, side).batches(0, STEPS)[:, 0])
        return cut, lambda: next(order)


def cut_of(rows, size, side):
    """The blocks as lists of rows: later ones lack the last entry where rows do not go round."""
    table = blocks(rows, size, SEED, side)
    longer = rows - len(table) * (table.shape[1] - 1)
    return [row if b < longer else row[:-1] for b, row in enumerate(table)]


def twin_of(case, problem, sizes):
    solver, twin = CASES[case]
    options = dataclasses.asdict(solver)
    if case == "saba":
        rates = {name: options[name] for name in RATES}
        return saba(problem, problem.x0, problem.y0, STEPS, rows=Blocks(problem, sizes), **rates)
    if solver.needs_uniform:
        options["uniform"] = lambda t: uniforms(SEED, t, 1)[0]
    return twin(problem, problem.x0, problem.y0, STEPS, rows=Rows(problem, sizes), **options)


def assert_same_steps(case, problem, library, sizes):
    records = twin_of(case, problem, sizes)
    task = given(problem, library)
    states = []
    result = untuned.minimize(
        *task.positional,
        **task.data,
        method=CASES[case][0],
        max_steps=STEPS,
        eval_every=1,
        batch_size=None if sizes == (None, None) else sizes,
        seed=SEED,
        callback=lambda snapshot: states.append(snapshot.state),
    )
    assert result.steps == STEPS, result.message
    totals = dict.fromkeys(result.counts, 0)
    for state, record in zip(states, records, strict=True):
        for name in ("x", "y", "v", "z"):
            if name in record and not (name == "v" and "z" in record):
                ours = as_numpy(getattr(state, name))
                np.testing.assert_allclose(ours, record[name], rtol=1e-9, atol=1e-9, err_msg=name)
        for name in totals:
            totals[name] += record[name]
        totals["inner_grad"] += record.get("inner_grad_x", 0)
    assert result.counts == totals
    norms = [np.linalg.norm(record["direction"]) for record in records]
    np.testing.assert_allclose(result.history["hypergrad_norm"], norms, rtol=1e-8)
    if case.split()[0] not in ("vrbo", "f2sa"):  # which report f at the end of their step
        expected = [record["outer"] for record in records]
        np.testing.assert_allclose(result.history["outer"], expected, rtol=1e-8)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_every_minibatch_step_is_the_twins(case, library):
    # F2SA's twin knows grad_x g of this problem only; there it depends on the rows.
    problem = cleaning(2, 30, 24, 5, 3, 0.4) if case.startswith("f2sa") else coupled(3, 30, 24, 4)
    assert_same_steps(case, problem, library, SIZES)


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_every_full_batch_step_is_the_twins(case, library):
    assert_same_steps(case, regularization(1, 40, 30, 6), library, (None, None))


def test_every_method_has_a_case():
    ours = {solver.name for solver, _ in CASES.values()} | {"d-tfbo", "s-tfbo", "auto"}
    assert ours == set(untuned.solvers.names())


@pytest.mark.parametrize(
    ("solver", "steps"),
    [
        (AID(step_size=0.15), 300),
        (AmIGO(step_size=0.15), 1000),
        (StocBiO(step_size=0.15, linear_steps=300), 500),
        (SABA(step_size=0.15), 1000),
        (SOBA(step_size=0.15), 4000),
        (FSLA(step_size=0.15), 4000),
        (MRBO(step_size=0.15, linear_steps=100), 2000),
        (VRBO(step_size=0.15, linear_steps=100), 400),
        (ITD(step_size=0.15, inner_steps=150), 300),
        (ABO(strong_convexity=1.0), 200),
        (BiSPS(outer_bound=-10.0, inner_bound=-10.0, longest_x=0.5, longest_y=0.3), 500),
        (MAID(beta0=1.0), 200),
        (DTFBO(linear_solver="cg", c_y=1e-8, c_v=1e-8), 300),
    ],
    ids=lambda value: getattr(value, "name", None),
)
@pytest.mark.long
def test_converges_to_the_closed_form(solver, steps):
    """Those whose bias vanishes with enough products; the others keep a noise or a penalty."""
    problem = quadratic(0, 3, 4, 5.0)
    result = untuned.minimize(*given(problem, "jax").positional, method=solver, max_steps=steps)
    np.testing.assert_allclose(result.state.x, problem.x_star(), atol=1e-3)
    np.testing.assert_allclose(result.state.v, problem.v_star(problem.x_star()), atol=1e-2)


@pytest.mark.long
def test_line_search_converges_where_one_step_follows():
    problem = quadratic(0, 3, 4, 1.0)
    result = untuned.minimize(*given(problem, "jax").positional, method=BiSLS(), max_steps=60)
    np.testing.assert_allclose(result.state.x, problem.x_star(), atol=1e-3)


@pytest.mark.long
def test_error_of_the_symmetric_difference_is_of_second_order():
    """Where F2SA's falls with nu = 1 / lambda (METHODS part 7)."""
    problem = quadratic(0, 3, 4, 5.0)
    task = given(problem, "torch")
    o = untuned.oracles(task.outer, task.inner, like=(task.x0, task.y0))
    truth = np.linalg.norm(problem.hypergradient(problem.x0))

    def error(nu):
        solver = F2SA2(step_size=0.15, inner_steps=500, nu=nu)
        _, info = solver.step(o, solver.init(o, task.x0, task.y0), untuned.Batch())
        return abs(float(info.hypergrad_norm) - truth)

    assert error(0.05) < 0.3 * error(0.1)


def test_conjugate_gradients_need_fewer_products():
    problem = quadratic(0, 3, 4, 50.0)
    task = given(problem, "jax").positional
    settings = {"c_y": 1e-6, "c_v": 1e-6}
    products, ends = [], []
    for linear_solver in ("adagrad-norm", "cg"):
        solver = DTFBO(linear_solver=linear_solver, **settings)
        run = untuned.minimize(*task, method=solver, max_steps=20)
        products.append(run.counts["hvp"])
        ends.append(run.state.x)
    np.testing.assert_allclose(ends[1], ends[0], atol=1e-3)
    assert products[1] < 0.1 * products[0]


def test_conjugate_gradients_that_end_early_say_why():
    """At a saddle of g the linear system has no solution to reach, with no cap in the way."""
    zeros, ones = torch.zeros(2).double(), torch.ones(2).double()
    saddle = lambda x, y: y[0] ** 2 - y[1] ** 2 + (x * y).sum()
    flat = lambda x, y: (ones * y).sum()
    solver = DTFBO(linear_solver="cg")
    run = untuned.minimize(flat, saddle, zeros, zeros, method=solver, max_steps=1)
    assert (run.history["indefinite"][-1], run.history["cap_hits"][-1]) == (1, 0)
    assert "g was flat or not convex in y" in run.message


def test_a_cap_that_is_just_enough_is_not_hit():
    """Two products solve a system of two variables: a cap of two ends nothing early."""
    x, y = torch.zeros(2).double(), torch.tensor([0.25, 0.25]).double()
    g = lambda x, y: (torch.tensor([1.0, 3.0]) * (y - 0.25 - x) ** 2).sum()
    f = lambda x, y: ((y - 1.0) ** 2).sum()
    hits = []
    for cap in (1, 2):
        solver = DTFBO(linear_solver="cg", cap=cap)
        run = untuned.minimize(f, g, x, y, method=solver, max_steps=1)
        hits.append((run.history["linear_steps"][-1], run.history["cap_hits"][-1]))
    assert hits == [(1, 1), (2, 0)]


def test_maid_says_so_where_a_trial_hits_its_cap():
    """y starts solved; only at the x that is tried would it need more than one step."""
    x = y = torch.zeros(2).double()
    scales = torch.tensor([1.0, 30.0]).double()
    o = untuned.oracles(
        lambda x, y: ((y - 1.0) ** 2).sum(), lambda x, y: (scales * (y - x) ** 2).sum(), like=(x, y)
    )
    solver = MAID(cap=1, beta0=1.0)
    _, info = solver.step(o, solver.init(o, x, y), untuned.Batch())
    assert info.capped


@pytest.mark.long
def test_f2sa_nears_the_solution_as_the_penalty_grows():
    problem = quadratic(0, 3, 4, 5.0)
    task = given(problem, "jax").positional
    far, near = (
        untuned.minimize(*task, method=F2SA(step_size=0.05, delta=delta), max_steps=3000)
        for delta in (1e-6, 0.02)
    )
    distance = [np.linalg.norm(run.state.x - problem.x_star()) for run in (far, near)]
    assert distance[1] < 0.3 * distance[0]


def test_the_gradient_reported_belongs_to_the_y_that_f_is_taken_at():
    """`measure` is made of both; F2SA has a z as well, whose gradient is another."""
    problem, solver = quadratic(0, 3, 4, 5.0), F2SA(step_size=0.02)
    task = given(problem, "torch")
    o = untuned.oracles(task.outer, task.inner, like=(task.x0, task.y0))
    old = solver.init(o, task.x0, task.y0)
    new, info = solver.step(o, old, untuned.Batch())
    x, y, _ = (as_numpy(part) for part in solver.measured_at(old, new))
    assert float(info.inner_grad_norm) == pytest.approx(np.linalg.norm(problem.g_y(x, y)))


def test_vrbo_is_exact_on_full_batches():
    """Its recursion must account for the moves of x and of y alike (METHODS, section 6)."""
    problem = regularization(1, 40, 30, 6)
    task = given(problem, "jax")
    solver = VRBO(step_size=0.3, inner_steps=3, linear_steps=2, period=1000)
    state = untuned.minimize(*task.positional, **task.data, method=solver, max_steps=9).state
    np.testing.assert_allclose(state.u, problem.g_y(state.x, state.y), atol=1e-12)


@pytest.mark.parametrize("name", ["jax", "torch"])
def test_series_and_conjugate_gradients(name):
    ops = get(name)
    rng = np.random.default_rng(0)
    root = rng.standard_normal((4, 4))
    H, b, sigma, n = root @ root.T / 4 + np.eye(4), rng.standard_normal(4), 0.2, 6
    powers = [np.linalg.matrix_power(np.eye(4) - sigma * H, q) @ b for q in range(n + 1)]
    with ops.precision(b):
        matrix, right = ops.asarray(H), ops.asarray(b)
        product = lambda k, w: matrix @ w
        series = shia(ops, product, right, n, sigma)
        draws = [hia(ops, product, right, n, sigma, p) for p in range(n)]
        solved = conjugate_gradient.solve(
            ops, lambda w: matrix @ w, right, ops.zeros_like(right), most=10
        )
    np.testing.assert_allclose(as_numpy(series), sigma * sum(powers), rtol=1e-12)
    mean = np.mean([as_numpy(w) for w in draws], axis=0)
    np.testing.assert_allclose(mean, sigma * sum(powers[:n]), rtol=1e-12)
    np.testing.assert_allclose(as_numpy(solved.z), np.linalg.solve(H, b), rtol=1e-10)
    assert float(solved.residual_norm) < 1e-10


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SOBA(step_size=0.0), r"SOBA was given step_size=0\.0; expected a finite number"),
        (lambda: AmIGO(outer_ratio=-1.0), r"AmIGO was given outer_ratio=-1\.0"),
        (lambda: TTSA(linear_steps=0), "TTSA was given linear_steps=0; expected a whole number"),
        (lambda: VRBO(period=2.5), r"VRBO was given period=2\.5"),
        (lambda: F2SA(delta=0), "F2SA was given delta=0"),
        (lambda: MRBO(eta=float("nan")), "MRBO was given eta=nan"),
        (lambda: AID(linear_solver="gmres"), "linear_solver='gmres'; expected 'cg' or"),
        (lambda: DTFBO(linear_solver="lu"), "DTFBO was given linear_solver='lu'; expected 'adag"),
        (lambda: ABO(sum_of="s"), "ABO was given sum_of='s'; expected 'inverse' or 'square'"),
        (lambda: ABO(inner_steps=-1), "ABO was given inner_steps=-1"),
        (lambda: ABO(inner_steps=0), "ABO was given inner_steps=0; expected a whole number"),
        (lambda: BiSPS(outer_bound=float("inf")), "outer_bound=inf; expected a finite number"),
        (lambda: BiSLS(delta=-1.0), r"BiSLS was given delta=-1\.0; expected a finite number from"),
        (lambda: BiSLS(shrink=1.0), r"shrink=1\.0; expected a number between zero and one"),
        (lambda: MAID(strong_convexity=0), "MAID was given strong_convexity=0"),
        (lambda: F2SA2(nu=-0.1), r"F2SA2 was given nu=-0\.1"),
        (
            lambda: DTFBO(alpha0="Auto"),
            "alpha0='Auto'; expected a finite number above zero or 'auto'",
        ),
        (lambda: DTFBO(horizon="never"), "expected a whole number from 1 up or 'anytime'"),
        (lambda: VRBO(period=np.int64(0)), "VRBO was given period=0"),
        (lambda: SOBA(step_size=np.float32(-1)), r"SOBA was given step_size=-1\.0"),
    ],
)
def test_bad_hyperparameters_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("method", ["bsa", "sustain", "ttsa"])
def test_a_step_by_hand_without_a_random_number(method):
    zeros = torch.zeros(2)
    f, g = (lambda x, y: ((y - 1) ** 2).sum()), (lambda x, y: ((y - x) ** 2).sum())
    o, solver = untuned.oracles(f, g, like=(zeros, zeros)), untuned.solvers.get(method)()
    state = solver.init(o, zeros, zeros)
    with pytest.raises(ValueError, match=r"Batch\(inner, outer, uniform=\.\.\.\) one from 0 to"):
        solver.step(o, state, untuned.Batch())
    solver.step(o, state, untuned.Batch(uniform=0.5))


def test_hyperparameters_may_be_numbers_of_numpy():
    """As what a sweep over an array gives; a checkpoint knows Python's only."""
    assert VRBO(period=np.int64(3), step_size=np.float64(0.5)) == VRBO(period=3, step_size=0.5)
    made = DTFBO(alpha0=np.float32(0.5), inner_steps=np.int32(4), horizon=np.uint8(9))
    assert [type(value) for value in (made.alpha0, made.inner_steps, made.horizon)] == [
        float,
        int,
        int,
    ]
