"""Absolute penalties: the y that minimizes g(y) + sum_k s_k |y_k|, y_k entries or groups of them.

    Newton's step: of single entries to the minimum of g's model and the penalty (pivots.py); of
    groups among those that are not zero, and one that it turns around becomes zero;
    then y <- P(y - D^{-1} grad g), P shrinking each group's length by s_k / D, if that frees a
    group or makes one zero.

D are sums of absolute values of the Hessian's rows, which bound it (Gershgorin), so the second
step falls. The solution moves with x among the groups that are not zero, so its derivative is
theirs; a group that would just leave zero counts as zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from untuned.solution import newton, pivots
from untuned.solution.newton import dot, norm, times

MOST_STEPS = 1000  # for groups, whose lengths the model of a step bends away from
MOST_BOUNDS = 8  # times that D is made larger


class Groups(NamedTuple):
    """Which entries of y are penalized together: a number for each, or nothing: each alone."""

    of_entry: tuple[int, ...] = ()

    @property
    def number(self) -> int:
        return max(self.of_entry) + 1

    def membership(self, lib: Any, like: Any) -> Any:
        return lib.eye(self.number, like)[np.array(self.of_entry)]  # entries x groups

    def lengths(self, lib: Any, y: Any) -> Any:
        """For each entry the length of its group, one where that is zero; and where it is not."""
        squares = y * y
        if self.of_entry:
            members = self.membership(lib, y)
            squares = squares @ members @ members.mT
        nonzero = squares > 0
        return lib.where(nonzero, squares, 1.0) ** 0.5, nonzero

    def of_entries(self, lib: Any, strength: Any) -> Any:
        """The strength at each entry."""
        return strength @ self.membership(lib, strength).mT if self.of_entry else strength

    def penalty(self, lib: Any, y: Any, strength: Any) -> Any:
        """sum_k s_k |y_k|."""
        if not self.of_entry:
            return dot(strength, abs(y))
        members = self.membership(lib, y)
        return dot(strength, (y * y @ members) ** 0.5)

    def slope(self, lib: Any, y: Any, weight: Any) -> Any:
        """The penalty's gradient where y is not zero."""
        lengths, nonzero = self.lengths(lib, y)
        if not self.of_entry:  # exact, and so is its derivative: none
            return lib.where(nonzero, lib.where(y > 0, weight, -weight), 0.0)
        return weight * y / lengths

    def curvature(self, lib: Any, y: Any, weight: Any) -> Any:
        """The penalty's Hessian, zero where y is."""
        unit = lib.eye(y.shape[-1], y)
        if not self.of_entry:
            return 0 * unit * y[..., None]
        lengths, nonzero = self.lengths(lib, y)
        members = self.membership(lib, y)
        heading = y / lengths
        across = unit - heading[..., None] * heading[..., None, :] * (members @ members.mT)
        return lib.where(nonzero[..., None], (weight / lengths)[..., None] * across, 0.0)

    def shrunk(self, lib: Any, z: Any, by: Any) -> Any:
        """Each group's length less `by`, or zero."""
        lengths, _ = self.lengths(lib, z)
        return z * lib.maximum(1 - by / lengths, 0.0)

    def turned(self, lib: Any, y: Any, old: Any) -> Any:
        """Entries of the groups that do not point the way they did."""
        products = y * old
        if self.of_entry:
            members = self.membership(lib, y)
            products = products @ members @ members.mT
        return products <= 0

    def largest(self, lib: Any, d: Any) -> Any:
        """For each entry the largest number of its group."""
        if not self.of_entry:
            return d
        members = self.membership(lib, d)
        of_groups = lib.largest(lib.where(members.mT > 0, d[..., None, :], 0.0))[..., 0]
        return of_groups @ members.mT

    def optimality(self, lib: Any, y: Any, grad: Any, strength: Any) -> Any:
        """Zero at the solution, with a symmetric derivative in y; `grad` is g's gradient."""
        _, nonzero = self.lengths(lib, y)
        moving = lib.where(nonzero, y, 0.0)
        slope = self.slope(lib, y, self.of_entries(lib, strength))
        return lib.where(nonzero, grad(moving) + slope, y)


class At(NamedTuple):
    """Where the iterations are."""

    y: Any
    value: Any  # of g and the penalty
    grad: Any  # of g
    step: Any
    energy: Any
    slow: Any  # as in newton.py
    regular: Any
    found: Any
    done: Any
    steps: Any


def solve(
    lib: Any, g: Any, y0: Any, groups: Groups, strength: Any, epsilon: float, tol: float | None,
    most: int,
) -> newton.Found:  # fmt: skip
    """The minimum of g and the penalty from y0; `strength` has one number for each group."""
    weight = groups.of_entries(lib, strength)
    unit = lib.eye(y0.shape[-1], y0)

    def evaluate(y: Any) -> tuple[Any, Any]:
        value, grad = g.value_and_grad(y)
        return value + groups.penalty(lib, y, strength), grad

    def slope_at(y: Any, grad: Any) -> Any:
        _, nonzero = groups.lengths(lib, y)
        return lib.where(nonzero, grad + groups.slope(lib, y, weight), 0.0)

    value, grad = evaluate(y0)
    zero = lib.zeros_like(y0[..., :1])
    never = zero > 0
    unusable = ~newton.is_finite(lib, value, grad)
    first = norm(grad) + norm(weight)
    start = At(y0, value, grad, zero, zero, zero, never, never, unusable, zero)

    def step(at: At) -> At:
        hessian = g.hessian(at.y)
        _, nonzero = groups.lengths(lib, at.y)
        curved = hessian + groups.curvature(lib, at.y, weight)

        def among(on: Any) -> newton.Factor:
            both = on[..., None] & on[..., None, :]
            matrix = lib.where(both, curved, 0.0) + lib.where(on[..., None], 0.0, unit)
            return newton.factored(lib, matrix, epsilon)

        factor = among(nonzero)
        slope = slope_at(at.y, at.grad)
        d = -factor.solve(lib, slope)
        energy = -dot(slope, d)
        noise = newton.ROUNDING * epsilon * (times(abs(hessian), abs(at.y)) + weight)
        left = newton.share_of(lib, d, at.y, y0, 1 / factor.scale)
        at_rest = (abs(slope) <= noise).all(-1)[..., None] | (left <= epsilon)
        if tol is not None:
            at_rest = at_rest | (norm(slope) <= tol * first)
        if not groups.of_entry:
            # The step of all entries, to the model's minimum.
            at_rest = at_rest & (nonzero | (abs(at.grad) <= weight + noise)).all(-1)[..., None]
            all_of_it = pivots.penalized(lib, hessian, at.y, at.grad, weight, d, among)
            whole = factor.regular & lib.isfinite(all_of_it).all(-1)[..., None]
            change = dot(weight, abs(at.y + all_of_it) - abs(at.y))
            whole_promise = dot(at.grad, all_of_it) + change

        def moved_by(t: Any) -> Any:
            y = at.y + t * d
            y = lib.where(nonzero & ~groups.turned(lib, y, at.y), y, 0.0)
            return y if groups.of_entry else lib.where(whole, at.y + t * all_of_it, y)

        def promised(t: Any, y: Any) -> Any:
            bare = dot(slope, y - at.y)
            return bare if groups.of_entry else lib.where(whole, t * whole_promise, bare)

        def levelled(value: Any) -> Any:
            return abs(value - at.value) <= 10 * epsilon * abs(at.value)

        def is_fine(t: Any, value: Any, grad: Any) -> tuple[Any, Any]:
            y = moved_by(t)
            pull = lib.where(nonzero, slope_at(y, grad), 0.0)
            energy_t = dot(pull, factor.solve(lib, pull))
            falls = (promised(t, y) < 0) & (value <= at.value + newton.ENOUGH * promised(t, y))
            return falls | (levelled(value) & (energy_t < energy)), energy_t

        def too_far(trial: tuple) -> Any:
            t, value, grad, tries = trial
            fine = (tries > 0) & is_fine(t, value, grad)[0]
            return ~fine & (tries <= newton.MOST_HALVINGS) & ~at_rest

        def shorten(trial: tuple) -> tuple:
            t, _, _, tries = trial
            value, grad = evaluate(moved_by(0.5 * t))
            return 0.5 * t, value, grad, tries + 1

        trial = (zero + 2, at.value, at.grad, zero)
        t, value, grad, tries = lib.while_loop(too_far, shorten, trial)
        fine, energy_t = is_fine(t, value, grad)
        moved = (tries > 0) & fine & ~at_rest
        at_its_end = ~moved | (levelled(value) & (energy_t > 0.25 * energy))
        y, value, grad = (
            lib.where(moved, new, old)
            for new, old in ((moved_by(t), at.y), (value, at.value), (grad, at.grad))
        )
        # The second step, from there.
        _, nonzero = groups.lengths(lib, y)
        bound = lib.maximum(abs(hessian).sum(-1), epsilon * lib.largest(abs(hessian).sum(-1)))
        bound = groups.largest(lib, lib.where(bound > 0, bound, 1.0))

        def shrunk(factor: Any) -> Any:
            d = factor * bound
            return groups.shrunk(lib, y - grad / d, weight / d)

        def changes(factor: Any) -> Any:
            return (groups.lengths(lib, shrunk(factor))[1] != nonzero).any(-1)[..., None]

        def too_long(trial: tuple) -> Any:
            factor, value_p, _, tries = trial
            fine = (tries > 0) & (value_p < value)
            return ~fine & (tries < MOST_BOUNDS) & changes(factor)

        def tighten(trial: tuple) -> tuple:
            factor, _, _, tries = trial
            factor = lib.where(tries > 0, 4 * factor, factor)
            return factor, *evaluate(shrunk(factor)), tries + 1

        trial = (zero + 1, value, grad, zero)
        by, value_p, grad_p, tries = lib.while_loop(too_long, tighten, trial)
        changed = (tries > 0) & (value_p < value)
        return At(
            y=lib.where(changed, shrunk(by), y),
            value=lib.where(changed, value_p, value),
            grad=lib.where(changed, grad_p, grad),
            step=left,
            energy=energy,
            slow=lib.where(energy > newton.FALL * at.energy, at.slow + 1, zero),
            regular=factor.regular,
            found=at_rest,
            done=at_its_end & ~changed,
            steps=at.steps + 1,
        )

    at = lib.while_loop(lambda at: ~at.done & (at.steps < most), step, start)
    return newton.Found(at.y, newton.code_at(lib, at, epsilon, tol), at.y[..., None, :0])
