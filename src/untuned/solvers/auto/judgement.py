"""When `auto` on all rows ends, and when a sample of the rows has served its turn.

**Ends** by itself where each of the last quarter of its steps has gained on average less than a
millionth of all that was gained, and the next one promises no more than they did together: at that
rate a thousand more would gain 0.1 %. That is the same in any precision, and is left out where a
tolerance is given. So is the end of a slow run: where nearly half of its steps (7/16, at least 30,
in which BFGS has learned all it knows three times over) gained less than 0.1 % of everything. With
and without, it ends where nothing is left of the first |h|, or where <h, p> promises less than
rounding can show, three times in a row.
Stalls where no shorter step lowers Phi~ though more is promised, unless |h| has fallen by the
square root of rounding by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from untuned.data.batches import Batch
from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Oracles
from untuned.solvers.auto import direction
from untuned.solvers.base import CONVERGED, ENOUGH, GO_ON, STALLED
from untuned.solvers.numerics import lbfgs

if TYPE_CHECKING:
    from untuned.solvers.auto.implicit import Ahead, Evaluation, State
    from untuned.solvers.auto.trials import Trial

FAILURES = 2
LITTLE = 0.01  # share of the whole decrease below which a step on a sample is the last
IDLE = 3  # steps in a row that promise a trifle
WORTH = 1e-6  # of all that was gained: less is not worth a step; a thousand steps gain 0.1 %
SLOW = 1e-3  # of all that was gained: less in nearly half of the steps is the end of a slow run
LONG = 3 * lbfgs.PAIRS  # steps: fewer say nothing of how fast a run is
NOTHING = 4e-11  # of the first hypergradient, or of the gain: none is left
DIGITS = 1e-7  # of f: a change beyond these is none in any precision

# Phi~ and the number of steps when the gain was last looked at, and when before that.
Marks = tuple[tuple[Scalar, Scalar], tuple[Scalar, Scalar]]


class Judgement(NamedTuple):
    """Whether a run goes on, and what that is judged by."""

    verdict: Scalar
    over: Scalar  # whether the sample has served its turn
    first_norm: Scalar
    first_value: Scalar
    marks: Marks
    held_out: Scalar
    gained: Scalar
    failures: Scalar
    idle: Scalar


def of(
    o: Oracles, state: State, batch: Batch, trial: Trial, here: Evaluation, ahead: Ahead, x: Tree
) -> Judgement:
    """Whether the run, or its stage on a sample, is over."""
    ops, y = o.ops, trial.y
    zero_count, size_of_f = ops.counter(0), ops.maximum(trial.outer.value, -trial.outer.value)
    first_norm = ops.where(state.first_norm > 0, state.first_norm, ahead.norm)
    first_value = ops.where(state.steps == 0, here.value, state.first_value)
    # Below this a gain is nothing: lost in rounding, or a trifle of what was gained.
    trifle = ops.maximum(ops.epsilon(y) * size_of_f, NOTHING * (first_value - here.value))
    # Where g curves downwards there may be no v, and then h says nothing.
    known = trial.solved.indefinite == 0
    idle = ops.where((-ahead.slope <= trifle) & known, state.idle + 1, zero_count)
    failures = ops.where(trial.accepted == 0, state.failures + 1, zero_count)
    held_out, gained, over = _watch_held_out(o, state, batch, x, y)
    # Before there is a model of Phi to say what a step can gain, a tenth of |f| stands for it.
    gain = ops.where(ahead.memory.count > 0, -ahead.slope, direction.FIRST_LENGTH * size_of_f)
    over = over | (ops.maximum(here.sample_error, -here.sample_error) > gain)
    # No way down is the end all the same, where |h| has fallen as far as f can resolve.
    at_rest = (failures >= FAILURES) & (ahead.norm <= ops.epsilon(y) ** 0.5 * first_norm)
    small = max(NOTHING, 10 * ops.epsilon(y))
    lost = (idle >= IDLE) & (-ahead.slope <= ops.epsilon(y) * size_of_f)
    done = ((ahead.norm <= small * first_norm) & known) | lost | at_rest
    stuck = over | (failures >= FAILURES)
    gain_in_all = state.earlier + first_value - here.value
    enough, marks = _is_it_worth_it(o, state, here, ahead, gain_in_all, size_of_f, failures)
    enough = enough | (idle >= IDLE)
    verdict = ops.where(stuck, STALLED, ops.where(enough, ENOUGH, GO_ON))
    verdict = ops.where(done, CONVERGED, verdict)
    return Judgement(
        verdict, over, first_norm, first_value, marks, held_out, gained, failures, idle
    )  # fmt: skip


def _is_it_worth_it(
    o: Oracles, state: State, here: Evaluation, ahead: Ahead, gain_in_all: Scalar,
    size_of_f: Scalar, failures: Scalar,
) -> tuple[Scalar, Marks]:  # fmt: skip
    """Whether too little is gained to go on, asked whenever another quarter of the steps is made;
    and the marks to ask by the next time."""
    ops = o.ops
    steps, (marked, since), (long_marked, long_since) = state.steps + 1, *state.marks
    fresh, asked = state.steps == 0, 4 * (steps - since) >= ops.maximum(4 * IDLE, steps)
    worth = ops.maximum(WORTH * (steps - since) * gain_in_all, DIGITS * size_of_f)
    enough = asked & (marked - here.value <= worth) & (-ahead.slope <= worth) & (failures == 0)
    # Or is it slow? Then what came in as long a time again would be less than this.
    little = SLOW * gain_in_all
    slow = asked & (steps - long_since >= LONG) & (long_marked - here.value <= little)
    enough = enough | (slow & (-ahead.slope <= little) & (failures == 0))
    marks = ops.where(asked, ((here.value, steps), state.marks[0]), state.marks)
    marks = ops.where(fresh, ((here.value, steps), (here.value, steps)), marks)
    return enough, marks


def _watch_held_out(
    o: Oracles, state: State, batch: Batch, x: Tree, y: Tree
) -> tuple[Scalar, Scalar, Scalar]:
    """f on rows outside the sample, its decrease so far, and whether the last step's was little."""
    if batch.data.held_out is None:
        return state.held_out, state.gained, state.steps < 0  # never
    now = o.outer_value(x, y, batch.data.held_out)
    gain = o.ops.where(state.steps > 0, state.held_out - now, 0.0)
    gained = state.gained + gain
    return now, gained, (state.steps > 0) & (gain <= LITTLE * gained)
