"""Which inequalities of a quadratic program hold its solution, by an interior point method.

    minimize 1/2 y' Q y + c' y   subject to   A y = b,  G y + s = h,  s >= 0

Newton's method for the conditions of optimality with s z = mu instead of zero, mu shrinking
(Mehrotra's predictor and corrector; Nocedal and Wright, "Numerical Optimization", 16.6). At its end
z > s tells the inequalities that hold y, and those make a system of linear equations for y.
All arrays may be stacks of programs, each with its own end.

The end is where s and z are far apart for each inequality: the system then gives y to all digits,
and says whether the inequalities were the right ones. Only if they were not beyond doubt, as where
y just touches one or all but does, steps go on until mu is all but zero, where rounding takes over.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from untuned.solution import newton
from untuned.solution.newton import dot, norm, times

MOST_STEPS = 60
INSIDE = 0.99  # share of the way to the boundary
EXACT = 0.75  # power of the spacing of numbers that gaps shrink to
SORTED = 0.25  # power of it that the smaller of s and z is of the larger where they are far apart
KEPT = 0.5  # power of it by which inequalities may be missed, of the size of y and h
SURE = 0.75  # power of it by which they are missed at most where there is no doubt


class Program(NamedTuple):
    """The arrays of a program or of a stack of them."""

    Q: Any
    c: Any
    A: Any
    b: Any
    G: Any
    h: Any

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.c.shape[-1], self.b.shape[-1], self.h.shape[-1]


class At(NamedTuple):
    y: Any
    s: Any
    z: Any  # multipliers of G y <= h
    price: Any  # multipliers of A y = b
    done: Any
    steps: Any


class Guess(NamedTuple):
    at: At
    held: Any  # one for the inequalities that hold y, zero for the others
    code: Any  # one of `newton`
    sure: Any  # whether nothing is in doubt
    rounds: Any


def held_system(lib: Any, p: Program, held: Any) -> tuple[Any, Any]:
    """Matrix and right side for y, the prices of A y = b, and those of the inequalities that hold y
    (`held` is one where they do and zero elsewhere)."""
    _, equal, unequal = p.sizes
    zeros = lambda rows, columns: (
        lib.zeros_like(p.c[..., :1, None])
        * lib.zeros_like(lib.eye(max(rows, columns), p.c)[:rows, :columns])
    )
    kept = held[..., None] * p.G
    slack = (held - 1)[..., None] * lib.eye(unequal, p.c)
    top = lib.join([p.Q, p.A.mT, kept.mT], -1)
    middle = lib.join([p.A, zeros(equal, equal), zeros(equal, unequal)], -1)
    bottom = lib.join([kept, zeros(unequal, equal), slack], -1)
    return lib.join([top, middle, bottom], -2), lib.join([-p.c, p.b, held * p.h], -1)


def parts(p: Program, solution: Any) -> tuple[Any, Any, Any]:
    n, equal, _ = p.sizes
    return solution[..., :n], solution[..., n : n + equal], solution[..., n + equal :]


def _solved(lib: Any, p: Program, matrix: Any, right: Any) -> tuple[Any, Any, Any]:
    return parts(p, lib.solve(matrix, right[..., None])[..., 0])


def held_by(lib: Any, p: Program, held: Any) -> tuple[Any, Any, Any]:
    """y and the prices of both kinds, if these inequalities hold y."""
    return _solved(lib, p, *held_system(lib, p, held))


def _start(lib: Any, p: Program) -> At:
    matrix, right = held_system(lib, p, 0 * p.h + 1)
    n, equal, unequal = p.sizes
    corner = lib.join([0 * p.c, 0 * p.b, 0 * p.h + 1], -1)
    unit = lib.eye(n + equal + unequal, p.c)
    y, price, z = _solved(lib, p, matrix - corner[..., None] * unit, right)
    inside = lambda v: lib.where(lib.smallest(v) > 0, v, v + 1 - lib.smallest(v))
    zero = lib.zeros_like(p.c[..., :1])
    return At(y, inside(-z), inside(z), price, zero > 0, zero)


def _longest(lib: Any, v: Any, d: Any) -> Any:
    """The largest t up to one with v + t d >= 0."""
    return lib.smallest(lib.where(d < 0, -v / lib.where(d < 0, d, -1.0), 1.0)).clip(None, 1.0)


def _step(lib: Any, p: Program, at: At, epsilon: float, is_first: Any) -> At:
    """The next point; in the first round a program is done when its inequalities are sorted."""
    goal = epsilon**EXACT
    n, equal, unequal = p.sizes
    slope = times(p.Q, at.y) + p.c + times(p.A.mT, at.price) + times(p.G.mT, at.z)
    missed, gap = times(p.A, at.y) - p.b, times(p.G, at.y) + at.s - p.h
    ratio = at.z / at.s
    top = lib.join([p.Q + p.G.mT @ (ratio[..., None] * p.G), p.A.mT], -1)
    corner = lib.zeros_like(p.c[..., :1, None]) * lib.zeros_like(lib.eye(max(equal, 1), p.c))
    solved = lib.solver(lib.join([top, lib.join([p.A, corner[..., :equal, :equal]], -1)], -2))

    def direction(complement: Any) -> tuple[Any, Any, Any, Any]:
        """To where s z + ds z + s dz is less by `complement`."""
        bent = slope + times(p.G.mT, ratio * gap - complement / at.s)
        both = solved(-lib.join([bent, missed], -1))
        dy = both[..., :n]
        ds = -gap - times(p.G, dy)
        return dy, ds, -(complement + at.z * ds) / at.s, both[..., n:]

    def length(ds: Any, dz: Any) -> Any:
        return _longest(lib, lib.join([at.s, at.z], -1), lib.join([ds, dz], -1))

    mu = dot(at.s, at.z) / unequal
    _, ds, dz, _ = direction(at.s * at.z)
    t = length(ds, dz)
    share = (dot(at.s + t * ds, at.z + t * dz) / unequal / mu) ** 3
    dy, ds, dz, dprice = direction(at.s * at.z + ds * dz - share * mu)
    t = INSIDE * length(ds, dz)
    t = lib.where(t >= INSIDE, 1.0 - goal**0.5 + 0 * t, t)

    def are_within(goal: float) -> Any:
        small = lambda v, size: norm(v) <= goal * (1 + size)
        fine = small(slope, norm(p.c) + norm(times(p.Q, at.y)) + norm(times(p.G.mT, at.z)))
        return fine & small(missed, norm(p.b)) & small(gap, norm(p.h) + norm(at.s))

    ends = are_within(goal) & (mu <= goal * (1 + abs(dot(p.c, at.y))))
    nearer, farther = lib.where(at.s < at.z, at.s, at.z), lib.where(at.s < at.z, at.z, at.s)
    is_sorted = (nearer <= epsilon**SORTED * farther).all(-1)[..., None] & are_within(goal**0.5)
    done = at.done | ends | (is_first & is_sorted) | ~lib.isfinite(norm(dy) + norm(dz))
    keep = lambda new, old: lib.where(done, old, new)
    return At(
        keep(at.y + t * dy, at.y), keep(at.s + t * ds, at.s), keep(at.z + t * dz, at.z),
        keep(at.price + t * dprice, at.price), done, at.steps + 1,
    )  # fmt: skip


def search(lib: Any, p: Program, epsilon: float) -> tuple[Any, Any]:
    """Which inequalities hold the solution (one or zero for each), and a code of `newton`."""
    if not p.sizes[2]:
        return 0 * p.h, _code(lib, p, 0 * p.h, epsilon)

    def sort(guess: Guess) -> Guess:
        going = lambda at: ~at.done & (at.steps < MOST_STEPS)
        step = lambda at: _step(lib, p, at, epsilon, guess.rounds < 1)
        at = lib.while_loop(going, step, guess.at._replace(done=guess.sure))
        held = lib.where(at.z > at.s, 1.0 + 0 * p.h, 0.0)
        code = _code(lib, p, held, epsilon)
        # Where rounding has taken over, what was found before stays.
        worse = (guess.code == newton.FINE) & (code != newton.FINE)
        held, code = lib.where(worse, guess.held, held), lib.where(worse, guess.code, code)
        sure = _code(lib, p, held, epsilon, SURE) == newton.FINE
        return Guess(at, held, code, sure, guess.rounds + 1)

    start = _start(lib, p)
    nothing = Guess(start, 0 * p.h, newton.LOST + 0 * start.steps, start.done, 0 * start.steps)
    again = lambda guess: ~guess.sure & (guess.rounds < 2)
    found = lib.while_loop(again, sort, nothing)
    return found.held, found.code


def _code(lib: Any, p: Program, held: Any, epsilon: float, power: float = KEPT) -> Any:
    """A code for the solution that these inequalities hold."""
    y, _, z = held_by(lib, p, held)
    zero, unit = lib.zeros_like(p.c[..., :1]), lib.eye(p.sizes[0], p.c)
    near = epsilon**power
    close = zero == 0
    if p.sizes[2]:
        size = lib.largest(abs(p.G) @ abs(y)[..., None])[..., 0] + abs(p.h)
        close = (times(p.G, y) - p.h <= near * (size + norm(y))).all(-1)[..., None]
        close = close & (z >= -near * (norm(z) + norm(p.c))).all(-1)[..., None]
    if p.sizes[1]:
        missed = norm(times(p.A, y) - p.b)
        close = close & (missed <= near * (norm(p.b) + norm(y) * norm(p.A).sum(-2)))
    # Convex everywhere, and strongly so along what holds y.
    scale = lib.largest(abs(p.Q * unit).sum(-1)) + zero
    scale = lib.where(scale > 0, scale, 1.0)[..., None]
    lower = lib.cholesky(p.Q + 100 * p.sizes[0] * epsilon * scale * unit)
    convex = lib.isfinite(lower).all(-1).all(-1)[..., None]
    rows = lib.join([p.A, held[..., None] * p.G], -2)
    rows = rows / lib.maximum(norm(rows), epsilon)
    regular = newton.factored(lib, p.Q / scale + rows.mT @ rows, epsilon).regular
    entries = sum(abs(part).sum(-1).sum(-1)[..., None] for part in (p.Q, p.A, p.G))
    known = lib.isfinite(norm(p.c) + norm(p.b) + norm(p.h) + entries)
    fails = ~lib.isfinite(norm(y) + norm(z))
    return newton.code_of(lib.where, known, close & ~fails, convex & regular & ~fails, zero)
