"""When `auto` on all rows ends.

It has **converged** where nothing is left of the first |h|, or where <h, p> promises less than
rounding can show, three times in a row.

It has gained **enough** where each of the last quarter of its steps gained on average less than a
millionth of the whole gain, and the next step promises no more than they did together: at that rate
a thousand more would gain 0.1 %. This is the same in any precision. The end of a slow run is the
same: nearly half of its steps (7/16, and at least 30, in which BFGS has learned all it knows three
times over) gained less than 0.1 % of everything. Both are left out where the user gives a
tolerance.

It has **stalled** where no shorter step lowers Phi~ though more is promised, unless |h| has fallen
by the square root of rounding by then; and where it would be over but y was not solved for, twice
in a row, as where g has no minimum: h says nothing there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from untuned.solvers.base import CONVERGED, ENOUGH, GO_ON, STALLED
from untuned.solvers.numerics import lbfgs

if TYPE_CHECKING:
    from untuned.solvers.auto.implicit import Next, State
    from untuned.solvers.auto.line_search import Point

FAILURES = 2  # searches in a row
IDLE = 3  # steps in a row that promise a trifle
WORTH = 1e-6  # of the whole gain: less is not worth a step; a thousand steps gain 0.1 %
SLOW = 1e-3  # of the whole gain: less in nearly half of the steps is the end of a slow run
LONG = 3 * lbfgs.PAIRS  # steps: fewer say nothing of how fast a run is
NOTHING = 4e-11  # of the first hypergradient, or of the gain: none is left
DIGITS = 1e-7  # of f: a change beyond these digits is none in any precision


class Mark(NamedTuple):
    """Phi~ after so many steps."""

    value: float = 0.0
    steps: int = 0


class Progress(NamedTuple):
    """What the end of a run is decided by."""

    first_norm: float = 0.0  # of the hypergradient
    first: Mark = Mark()
    # When the gain was last looked at, and when before that.
    last: Mark = Mark()
    before: Mark = Mark()
    failures: int = 0
    idle: int = 0
    unsolved: int = 0  # steps in a row that left y far from a solution
    largest: float = 0.0  # norm of grad_y g


def after(state: State, at: Point, ahead: Next, epsilon: float) -> tuple[int, Progress]:
    """The verdict after a step, and what the next one is decided by."""
    so_far, steps, value = state.progress, state.steps + 1, at.value
    size_of_f, promised = abs(at.outer.value), -ahead.slope
    first, first_norm = so_far.first, so_far.first_norm
    if state.steps == 0:
        first = Mark(value, steps)
    if not first_norm > 0:
        first_norm = ahead.norm
    # Below this a gain is nothing: lost in rounding, or a trifle of what was gained.
    trifle = max(epsilon * size_of_f, NOTHING * (first.value - value))
    # Where g curves downwards there may be no v, and then h says nothing.
    idle = so_far.idle + 1 if promised <= trifle and at.has_v else 0
    failures = 0 if at.accepted else so_far.failures + 1
    unsolved = 0 if at.solved else so_far.unsolved + 1
    # No way down is the goal all the same, where |h| has fallen as far as f can resolve.
    at_rest = failures >= FAILURES and ahead.norm <= epsilon**0.5 * first_norm
    lost = idle >= IDLE and promised <= epsilon * size_of_f
    gone = ahead.norm <= max(NOTHING, 10 * epsilon) * first_norm and at.has_v

    last, before, enough = so_far.last, so_far.before, idle >= IDLE
    if state.steps == 0:
        last = before = first
    elif 4 * (steps - last.steps) >= max(4 * IDLE, steps):  # another quarter of the steps is made
        whole_gain = first.value - value
        worth = max(WORTH * (steps - last.steps) * whole_gain, DIGITS * size_of_f)
        little = SLOW * whole_gain
        poor = last.value - value <= worth and promised <= worth
        slow = steps - before.steps >= LONG and before.value - value <= little >= promised
        enough = enough or ((poor or slow) and failures == 0)
        last, before = Mark(value, steps), last
    if gone or lost or at_rest:
        verdict = CONVERGED
    elif failures >= FAILURES:
        verdict = STALLED
    else:
        verdict = ENOUGH if enough else GO_ON
    if unsolved and verdict in (CONVERGED, ENOUGH):
        verdict = STALLED if unsolved >= FAILURES else GO_ON
    return verdict, Progress(
        first_norm, first, last, before, failures, idle, unsolved, at.largest
    )  # fmt: skip
