"""Newton's method for problems of few variables, one or a stack of them, each until its own end.

    d from H d = -grad g among the free entries,   y <- P(y + t d),   t = 1, 1/2, 1/4, ...
    until g has fallen enough, or where it changes by rounding only, its gradient has.

P is the projection onto y's set (Bertsekas, "Projected Newton methods", for bounds). Where H is
not positive definite a multiple of its diagonal is added until it is.

**How exact.** Steps go on until the gradient is what rounding leaves of it, or until a step no
longer makes it smaller. What would be the next step then tells how far y is from the solution, and
Cholesky's pivots whether g is strongly convex there; if either says no, there is no answer.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from untuned.solution import pivots
from untuned.solution.regions import Region

MOST_STEPS, MOST_HALVINGS, MOST_SHIFTS = 100, 30, 16
ENOUGH = 1e-4  # share of the decrease that the slope promises (Armijo)
ROUNDING = 4  # times the spacing of numbers is what rounding leaves of a gradient
CLOSE = 0.4  # power of that spacing: how near y must be to the solution, of its size
FAINT = 4  # power of it: a diagonal entry's share of the largest that units can explain
SLOW, FALL = 10, 0.01  # so many steps in a row that lower the promised gain by less than this share
REGULAR = 8  # times that spacing, and the root of the dimension: pivots that are not zero
# Where curvature is positive at the point that is no minimum, there is a derivative all the same.
FINE, NOT_FINITE, NOT_FOUND, NOT_CONVEX, LOST = range(5)


class Factor(NamedTuple):
    """S H S = L L^T with S the inverse root of H's diagonal, H shifted where that needs it."""

    scale: Any
    lower: Any
    regular: Any  # whether it was positive definite without a shift

    def solve(self, lib: Any, b: Any) -> Any:
        return self.scale * lib.cholesky_solve(self.lower, self.scale * b)

    @property
    def root(self) -> Any:
        """The lower factor of H itself."""
        return self.lower / self.scale[..., None]


class At(NamedTuple):
    """Where the iterations are."""

    y: Any
    value: Any
    grad: Any
    root: Any  # of the Hessian where the last step was looked for, or of the one that is the same
    step: Any  # size of the last Newton step, taken or not, as a share of y's (`share_of`)
    energy: Any  # twice what it promises
    slow: Any  # steps in a row that lowered that by little
    regular: Any
    found: Any  # whether the gradient is as small as asked for
    done: Any
    descend: Any  # whether the next step is along the gradient
    steps: Any


class Found(NamedTuple):
    """The solution, what is to be said of it (one of the codes above), and the lower factor of the
    Hessian there, or nothing of it."""

    y: Any
    code: Any
    root: Any


def dot(a: Any, b: Any) -> Any:
    return (a * b).sum(-1)[..., None]


def norm(a: Any) -> Any:
    return dot(a, a) ** 0.5


def is_finite(lib: Any, value: Any, *vectors: Any) -> Any:
    """Whether all of them are; squares of what is finite need not be."""
    return lib.isfinite(value + sum(0 * lib.largest(abs(vector)) for vector in vectors))


def times(matrix: Any, vector: Any) -> Any:
    return (matrix @ vector[..., None])[..., 0]


def share_of(lib: Any, step: Any, y: Any, y0: Any, weight: Any) -> Any:
    """The length of a step as a share of y's, or of the way to y from y0, whichever is longer.

    Entries are weighed by the roots of the Hessian's diagonal, so that units do not matter.
    """
    top = lib.largest(weight)
    weight = weight / lib.where(top > 0, top, 1.0)
    size = lib.maximum(norm(weight * y), norm(weight * (y - y0)))
    length = norm(weight * step)
    return lib.where(length == 0, length, length / size)


def only_where(lib: Any, asked: Any, compute: Any, given: Any, otherwise: Any) -> Any:
    """compute(given) for the problems that ask, if any does, and `otherwise` for the others."""

    def once(carry: tuple) -> tuple:
        _, asks = carry
        # What does not depend on what the loop carries, XLA would compute before the loop.
        return compute(lib.where(asks, given, 0.0)), asks & False

    return lib.while_loop(lambda carry: carry[1], once, (otherwise, asked))[0]


def factored(lib: Any, matrix: Any, epsilon: float) -> Factor:
    """The factor of a matrix, shifted until it is positive definite."""
    size = matrix.shape[-1]
    unit = lib.eye(size, matrix)
    diagonal = abs(lib.diagonal(matrix))
    top = lib.largest(diagonal)
    scale = lib.maximum(diagonal, epsilon**FAINT * top)
    scale = lib.where(scale > 0, scale, 1.0) ** -0.5
    scaled = scale[..., None] * matrix * scale[..., None, :]
    least = REGULAR * epsilon * size**0.5

    def is_regular(lower: Any) -> Any:
        return lib.smallest(lib.diagonal(lower)) ** 2 > least

    def irregular(carry: tuple) -> Any:
        lower, _, tries = carry
        return ~is_regular(lower) & (tries < MOST_SHIFTS) & lib.isfinite(top)

    def shifted(carry: tuple) -> tuple:
        _, shift, tries = carry
        # By ever smaller powers while it is small: where a matrix has a negative eigenvalue, that
        # is mostly a good part of its diagonal.
        larger = lib.where(shift < 0.1, shift**0.5, 10 * shift)
        shift = lib.where(shift > 0, larger, first_shift)
        return lib.cholesky(scaled + shift[..., None] * unit), shift, tries + 1

    # A diagonal that is negative wants twice its size, so that its sign is turned.
    first_shift = lib.maximum(-2 * lib.smallest(lib.diagonal(scaled)), epsilon**0.5)
    first, zero = lib.cholesky(scaled), lib.zeros_like(top)
    lower, _, _ = lib.while_loop(irregular, shifted, (first, zero, zero))
    return Factor(scale, lower, is_regular(first))


def solve(
    lib: Any, g: Any, y0: Any, region: Region, epsilon: float, tol: float | None, most: int,
    keeps_root: bool = False,
) -> Found:  # fmt: skip
    """The minimum of g over the region, from y0 in it; nothing for the root if it is not kept."""
    y0 = region.project(lib, y0, y0 == y0)
    value, grad = g.value_and_grad(y0)
    rows = region.rows(lib, y0)
    zero = lib.zeros_like(y0[..., :1])
    first = norm(region.reduced(lib, y0, grad))
    never = zero > 0
    unusable = ~is_finite(lib, value, grad, y0)
    kept = y0 if keeps_root else y0[..., :0]
    nothing = lib.zeros_like(kept[..., None] * kept[..., None, :])
    start = At(y0, value, grad, nothing, zero, zero, zero, never, never, unusable, never, zero)

    def going(at: At) -> Any:
        return ~at.done & (at.steps < most)

    def step(at: At) -> At:
        hessian = g.hessian(at.y)
        free = region.free(lib, at.y, at.grad)
        among = partial(_newton, lib, region, rows, hessian, epsilon)
        factor, direction = among(free)
        slope = lib.where(free, region.reduced(lib, at.y, at.grad), 0.0)
        newton = direction(slope)
        energy = -dot(slope, newton)
        sizes = abs(hessian)
        noise = ROUNDING * epsilon * times(sizes, abs(at.y))
        if region.leaves:
            noise = noise + ROUNDING * epsilon * lib.largest(abs(at.grad))
        left = share_of(lib, newton, at.y, y0, lib.where(free, 1 / factor.scale, 0.0))
        at_rest = (abs(slope) <= noise).all(-1)[..., None] | (left <= epsilon)
        if tol is not None:
            at_rest = at_rest | (norm(slope) <= tol * first)
        d = newton
        if not region.everywhere:
            within = pivots.within(
                lib, region, rows, hessian, at.y, at.grad, free, newton, lambda free: among(free)[1]
            )
            bound = lib.maximum(lib.largest(sizes.sum(-1)), epsilon)
            usable = factor.regular & lib.isfinite(within).all(-1)[..., None]
            d = lib.where(at.descend, -at.grad / bound, lib.where(usable, within, newton))

        def levelled(value: Any) -> Any:
            return abs(value - at.value) <= 10 * epsilon * abs(at.value)

        def too_far(trial: tuple) -> Any:
            *_, fine, tries = trial
            return ~fine & (tries <= MOST_HALVINGS) & ~at_rest

        def shorten(trial: tuple) -> tuple:
            t = 0.5 * trial[0]
            z = at.y + t * d
            y = region.project(lib, z, at.descend | (z > region.low))
            value, grad = g.value_and_grad(y)
            promised = dot(at.grad, y - at.y)
            pull = lib.where(free, region.reduced(lib, y, grad), 0.0)
            energy_of = lambda pull: -dot(pull, direction(pull))
            energy_t = only_where(lib, levelled(value), energy_of, pull, energy)
            falls = (promised < 0) & (value <= at.value + ENOUGH * promised)
            fine = falls | (levelled(value) & (energy_t < energy))
            return t, y, value, grad, energy_t, fine, trial[-1] + 1

        trial = (zero + 2, at.y, at.value, at.grad, energy, never, zero)
        _, y, value, grad, energy_t, moved, _ = lib.while_loop(too_far, shorten, trial)
        exact = never
        if region.everywhere:
            # Where a step ends at the minimum and g's Hessian is the same there, as a quadratic's
            # is, there is nothing to look at again.
            rounded = 2 * ROUNDING * epsilon * times(sizes, abs(y))
            exact = g.has_hessian(y, hessian, moved & (abs(grad) <= rounded).all(-1)[..., None])
        at_its_end = levelled(value) & (energy_t > 0.25 * energy)
        stuck = ~moved | at_its_end
        # Within a set a Newton step may fail where one down the slope does not.
        may_descend = (stuck & ~at.descend & ~at_its_end) & (not region.everywhere)
        return At(
            y=lib.where(moved, y, at.y),
            value=lib.where(moved, value, at.value),
            grad=lib.where(moved, grad, at.grad),
            root=factor.root if keeps_root else nothing,
            step=left,
            energy=energy,
            slow=lib.where(energy > FALL * at.energy, at.slow + 1, zero),
            regular=factor.regular,
            found=at_rest | exact,
            done=at_rest | exact | (stuck & ~may_descend),
            descend=~at_rest & may_descend,
            steps=at.steps + 1,
        )

    at = lib.while_loop(going, step, start)
    return Found(at.y, code_at(lib, at, epsilon, tol), at.root)


def code_at(lib: Any, at: Any, epsilon: float, tol: float | None) -> Any:
    """What is to be said of where the iterations ended."""
    near = epsilon**CLOSE
    # A y of zero has no size to compare with, but what is left to gain has g's.
    close = (at.step <= near) | (at.energy <= near**2 * abs(at.value))
    close = at.done & (at.found | close)
    finite = is_finite(lib, at.value, at.grad, at.y)
    regular = at.regular & ((at.slow < SLOW) | (tol is not None))
    return code_of(lib.where, finite, close, regular, lib.zeros_like(at.y[..., :1]))


def code_of(where: Any, finite: Any, close: Any, convex: Any, zero: Any) -> Any:
    """What is to be said of a solution."""
    convex_code = where(close, FINE + zero, NOT_FOUND + zero)
    other_code = where(close, NOT_CONVEX + zero, LOST + zero)
    return where(finite, where(convex, convex_code, other_code), NOT_FINITE + zero)


def _newton(
    lib: Any, region: Region, rows: Any, hessian: Any, epsilon: float, free: Any
) -> tuple[Factor, Any]:
    """The factor of the Hessian among free entries, and the map from slopes to Newton steps, with
    what is missing of the sums if something is."""
    if region.everywhere:
        factor = factored(lib, hessian, epsilon)
        return factor, lambda slope: -factor.solve(lib, slope)
    unit = lib.eye(hessian.shape[-1], hessian)
    both = free[..., None] & free[..., None, :]
    matrix = lib.where(both, hessian, 0.0) + lib.where(free[..., None], 0.0, unit)
    if rows is None:
        factor = factored(lib, matrix, epsilon)
        return factor, lambda slope, _=None: -factor.solve(lib, slope)
    # Steps that change no sum do not see the term that makes the matrix regular across them.
    sums = lib.where(free[..., None, :], rows, 0.0)
    weight = lib.largest(abs(lib.diagonal(matrix)))
    factor = factored(lib, matrix + weight[..., None] * (sums.mT @ sums), epsilon)
    back = lib.stack([factor.solve(lib, sums[..., k, :]) for k in range(rows.shape[0])], -1)

    def direction(slope: Any, missing: Any = 0.0) -> Any:
        bare = factor.solve(lib, slope)
        price = lib.solve(sums @ back, (times(sums, bare) + missing)[..., None])[..., 0]
        return times(back, price) - bare

    return factor, direction
