"""`auto` on minibatches where y is a network: every entry has a scale of its own.

A network is not convex in y, its layers have gradients of different sizes, and (grad_yy g)^-1 need
not exist. So y moves as by Adam, v is the trusted gradient in the metric of y's steps, and x moves
entry by entry as by AdaGrad. With fresh rows for each gradient, one step is

    y_k <- y_k - r_k m / sqrt(s),        m, s: running means of grad_y g and of its square; twice
    v   <- a / sqrt(s + 0.01 mean(s)),   a: running mean of grad_y f, over about ten batches
    x   <- x - D h / sqrt(q + S),        h = grad_x f - (grad_xy g) v

where S sums h^2 entry by entry, and q is its mean over the entries that a batch moves and over the
latest tenth of the steps. Where x has an entry for each row, of which a batch moves a few, that is
all. Where every batch moves all of x, as with decays of layers,

    S   <- S q / q_before + h^2          since h shrinks by orders of magnitude where x does (a
                                         decay exp(x)): over a plain sum x would never come back;

and x waits until training alone lowers f no more than a tenth as fast as at its quickest, by
<v, m>: before that, whatever makes y learn more slowly looks bad, as every decay does.

Where x has entries for each row there are far more of them than rows in f, and x would learn these
by heart. So batches of f are of two halves of its rows in turn, each with a running mean a of its
own. x follows the first half three times as far as the second, and every move is judged by both
when its rows are next drawn:

    x = x_0 + c d,   d <- d + m,   m = -(1 + k) D h_1 / sqrt(q + S) by the first half's turn and
                                       -(1 - k) D h_2 / sqrt(q + S) by the second's, k = 1/2,
    e = (<h_1, m> + <h_2, m>) / 2 - (<h_1, m> - <h_2, m>) / 2k,   c = -E / sqrt(sum of e^2),

with h in units of sqrt(q), m each half's latest move of a row less its mean over the rows of the
batch, E the sum of e, but at most 0, and c at most 1; it is 1 before anything was said. If chance
is n_1 in h_1 and n_2 in h_2, a move of x has a part along (n_1 + n_2) / 2 + k (n_1 - n_2) / 2 that
rows which nobody has know nothing of. Both halves flatter it: their sum by the square of the first
part, their difference by k times that of the second, which is as large on average. So e is what
such rows would say of the move, and -E what x has gained there. x counts as far as that is more
than chance. A number added to all entries counts for nothing: it makes y's steps longer, which Adam
undoes. (Halves that teach alike and judge each other are no such judges: the second comes to undo
what is chance in the first, which the first then counts as harm, more with every step.)

mean(s) and q are of one leaf. r_k is 3 % of the size of leaf k at the start, D a tenth of the size
of x's leaf, or 1 where that is zero. What is given back is an average of y over the latest tenth of
the steps, and f is watched there. Its running mean, which orders points, counts from the hundredth
step on, since a y that has not been trained says nothing about f(x, y*(x)): where classes are of
different sizes, f may be lowest there and long remain above it.

The length of v is that of nothing in particular. It drops out of x's steps unless f depends on x
itself; then v is made l times as long, as (grad_yy g) l v = grad_y f asks along v.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from untuned.data.batches import Batch, draw
from untuned.ops import Ops, Scalar, Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import Info

RATE = 0.03  # of y's size, leaf by leaf
FIRST_MOVE = 0.1  # of x's size: how far an entry moves at first, as on all rows
MEAN, SQUARES = 0.9, 0.999  # of Adam
DAMPING = 0.01
SETTLED = 0.1  # of the quickest fall of f by training alone: below it x begins to move
FEW = 10  # batches that make up a running mean
MEMORY = 0.01  # weight of the newest batch in the running estimate of f and in v's length
LEAN = 0.5  # k: how much further than their mean x follows the first half of the outer rows
LATEST = 10  # the means of y and of h^2 are over about the latest tenth of all steps
INNER_DRAWS = 2


class Moments(NamedTuple):
    """Running means of a gradient and of its square."""

    mean: Tree
    squares: Tree


class Half(NamedTuple):
    """What a half of the outer rows has said; the whole of them where there are no halves."""

    trusted: Tree  # running mean of grad_y f
    move: Tree  # m, how it moved each entry of x last; nothing where there are no halves


class State(NamedTuple):
    """x, the averaged y, v, and what their steps are made of."""

    x: Tree
    y: Tree  # the average, which is the answer
    v: Tree
    moving: Tree  # the y that is trained
    moments: Moments
    halves: tuple[Half, ...]  # one or two; the first is the one whose turn it is
    start: Tree  # x_0, where there are halves, and
    way: Tree  # d
    said: Scalar  # the first half's part of e,
    against: Scalar  # E, and
    squares_against: Scalar  # the sum of e^2
    rates: Tree  # of y
    reach: Tree  # D
    squares_x: Tree  # S
    usual_x: Tree  # q
    curvature: Scalar  # <v, (grad_yy g) v>, and
    slope: Scalar  # <v, grad_y f>, where f depends on x
    falls: Scalar  # running mean of <v, m>, how fast training alone lowers f
    quickest: Scalar  # the largest it was
    settled: Scalar  # 1 from when on x moves, 0 before
    mean: Scalar  # of f over the latest batches
    spread: Scalar  # its variance over them
    t: Scalar


def cost(direct: bool) -> Counts:
    """Evaluations per step."""
    return Counts(1, INNER_DRAWS, int(direct), 1)


def init(o: Oracles, x: Tree, y: Tree, halves: bool) -> State:
    """Start at (x, y) with v = 0; `halves` says whether batches of f are of two in turn."""
    ops, v = o.ops, o.ops.zeros_like(y)
    zero = ops.scalar(0.0, y)
    parts = (Half(v, ops.zeros_like(x)),) * 2 if halves else (Half(v, ()),)
    return State(
        x, y, v, y, Moments(v, v), parts, x if halves else (), parts[0].move, zero, zero, zero,
        ops.tree_map(lambda leaf: RATE * _size_of(ops, leaf), y),
        ops.tree_map(_reach_of, x),
        ops.zeros_like(x), ops.tree_map(lambda leaf: 0 * leaf.sum(), x),
        zero, zero, zero, zero, zero, zero, zero, ops.counter(0),
    )  # fmt: skip


def step(o: Oracles, state: State, batch: Batch, direct: bool) -> tuple[State, Info]:
    """Two steps of y, one of x; `direct` says whether f depends on x itself."""
    ops, x, t = o.ops, state.x, state.t
    first = o.inner_grad(x, state.moving, draw(ops, batch.inner, 0))
    y, moments = _adam(ops, state.moving, first, state.moments, state.rates, 2 * t + 1)

    f = o.outer(x, state.y, batch.outer)
    turn = state.halves[0]
    trusted = _toward(ops, 1 - MEAN, turn.trusted, f.grad_y)
    scale = 1 - SQUARES ** (2 * t + 1.0)
    v = ops.tree_map(
        lambda a, s: a / _root(ops, s / scale + DAMPING * s.mean() / scale),
        trusted,
        moments.squares,
    )
    falls = MEAN * state.falls + (1 - MEAN) * ops.dot(v, moments.mean)
    quickest = ops.maximum(state.quickest, falls)
    settled = ops.where((t >= FEW) & (falls <= SETTLED * quickest), 1.0, state.settled)

    rows = draw(ops, batch.inner, 1)
    slope, curvature = state.slope, state.curvature
    if direct:
        second, hvp, cross = o.inner(x, y, v, rows)
        curvature = curvature + MEMORY * (ops.dot(v, hvp) - curvature)
        slope = slope + MEMORY * (ops.dot(v, f.grad_y) - slope)
        # Along a direction without positive curvature as far as if its sign were turned.
        length = slope / ops.maximum(abs(curvature), 1e-30)
        length = ops.where(length > 0, length, 0.0)
        hypergrad = ops.axpy(-length, cross, f.grad_x)
    else:
        second, cross = o.inner_cross(x, y, v, rows)
        hypergrad = ops.sub(f.grad_x, cross)
    y, moments = _adam(ops, y, second, moments, state.rates, 2 * t + 2)
    newest = LATEST / (LATEST + t)
    average = _toward(ops, newest, state.y, y)

    usual = ops.tree_map(lambda h, q: _usual(h, q, newest), hypergrad, state.usual_x)
    taken = ops.tree_map(lambda h: ops.where(_moves_all(h), settled, 1.0) * h, hypergrad)
    squares = ops.tree_map(
        lambda h, s, q, before: s * ops.where(_moves_all(h), _ratio(ops, q, before), 1.0) + h * h,
        taken, state.squares_x, usual, state.usual_x,
    )  # fmt: skip
    by = ops.tree_map(
        lambda h, s, q, reach: -reach * h / _root(ops, s + q), taken, squares, usual, state.reach
    )
    way, said = state.way, state.said
    against, squares_against = state.against, state.squares_against
    if len(state.halves) == 1:
        halves: tuple[Half, ...] = (Half(trusted, ()),)
        moved = ops.axpy(1.0, by, x)
        if o.project is not None:
            moved = o.project(moved)
    else:
        other, first = state.halves[1], t % 2 == 0
        moves = ops.axpy(1.0, turn.move, other.move)
        now = _judged(ops, hypergrad, usual, moves)
        # Both halves together are one e: what they have in common is no spread of it.
        e = ops.where(first, 0.0, said + (1 + 1 / LEAN) / 2 * now)
        said = ops.where(first, (1 - 1 / LEAN) / 2 * now, said)
        squares_against = squares_against + e * e
        against = ops.where(against + e < 0, against + e, 0.0)
        used = -against / ops.maximum(squares_against, 1e-37) ** 0.5
        used = ops.where((used < 1) & (squares_against > 0), used, 1.0)
        by = ops.tree_map(lambda move: ops.where(first, 1 + LEAN, 1 - LEAN) * move, by)
        way = ops.axpy(1.0, by, way)
        latest = ops.tree_map(lambda new, old: new + (new == 0) * old, by, turn.move)
        halves = (other, Half(trusted, latest))
        moved = ops.axpy(used, way, state.start)

    weight = ops.maximum(1 / (t + 1.0), MEMORY)
    shift = f.value - state.mean
    mean = state.mean + weight * shift
    spread = (1 - weight) * (state.spread + weight * shift * shift)
    h_norm = ops.norm(hypergrad)
    info = Info(
        outer=f.value,
        inner_grad_norm=ops.norm(second),
        hypergrad_norm=h_norm,
        step_x=ops.norm(ops.sub(moved, x)) / ops.where(h_norm > 0, h_norm, 1.0),
        step_y=RATE,
        measure=ops.where(t + 1 >= 1 / MEMORY, mean, float("inf")),
        measure_error=(spread * weight / (2 - weight)) ** 0.5,
        inner_steps=INNER_DRAWS,
        inner_drawn=INNER_DRAWS,
        counts=cost(direct),
    )
    following = State(
        moved, average, v, y, moments, halves, state.start, way, said, against, squares_against,
        state.rates, state.reach, squares, usual, curvature, slope, falls, quickest, settled,
        mean, spread, t + 1,
    )  # fmt: skip
    return ops.cast(following, state), info


def _adam(
    ops: Ops, y: Tree, gradient: Tree, old: Moments, rates: Tree, count: Scalar
) -> tuple[Tree, Moments]:
    """One step of Adam, the count-th."""
    moments = Moments(
        _toward(ops, 1 - MEAN, old.mean, gradient),
        ops.tree_map(lambda s, g: s + (1 - SQUARES) * (g * g - s), old.squares, gradient),
    )
    # Running means that start from zero are too small by these.
    scale = (1 - SQUARES ** (count + 0.0)) ** 0.5 / (1 - MEAN ** (count + 0.0))
    moved = ops.tree_map(
        lambda y, m, s, rate: y - rate * scale * m / _root(ops, s), y, *moments, rates
    )
    return moved, moments


def _judged(ops: Ops, h: Tree, usual: Tree, moves: Tree) -> Scalar:
    """<h, m>: what h of one half says of the latest moves of both."""

    def centred(h: Any, move: Any) -> Any:
        here = (h != 0) * 1.0
        return here * (move - (here * move).sum() / ops.maximum(here.sum(), 1.0))

    scaled = ops.tree_map(lambda h, q: h / _root(ops, q), h, usual)
    return ops.dot(scaled, ops.tree_map(centred, h, moves))


def _toward(ops: Ops, share: Scalar, old: Tree, new: Tree) -> Tree:
    return ops.axpy(share, ops.sub(new, old), old)


def _root(ops: Ops, squares: Any) -> Any:
    """The square root, but not zero: what it divides is zero where it would be."""
    return ops.clip(squares, 1e-37, None) ** 0.5


def _size_of(ops: Ops, leaf: Any) -> Any:
    """The root mean square of a leaf's entries, or 1 where they are zero, as an array."""
    size = (leaf * leaf).mean() ** 0.5
    return size + (size == 0)


def _reach_of(leaf: Any) -> Any:
    """D: a tenth of the size of x's leaf, or 1 where it starts at zero."""
    size = FIRST_MOVE * (leaf * leaf).mean() ** 0.5
    return size + (size == 0)


def _moves_all(h: Any) -> Any:
    """Whether a batch moves half of the entries or more, and so no row's own."""
    return ((h != 0) * 1.0).mean() >= 0.5


def _ratio(ops: Ops, new: Any, old: Any) -> Any:
    return ops.where(old > 0, new / ops.clip(old, 1e-37, None), 1.0)


def _usual(h: Any, old: Any, newest: Scalar) -> Any:
    """q: a running mean over entries that a batch moves; the old one where it moves none."""
    moved = (h != 0).sum()
    none = moved == 0
    now = (h * h).sum() / (moved + none) + none * old
    return old + newest * (now - old)
