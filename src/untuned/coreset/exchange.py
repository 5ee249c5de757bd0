"""`Exchange`: the coreset problem where the top-K regularizer rules, as a method of `minimize`.

With an arbitrarily strong regularizer, lambda has K entries of 1/K and zeros elsewhere, so only the
choice of rows is left. A step exchanges some rows of the coreset for others and keeps what lowers f
by more than y's error explains, |<v, grad_y g>|, where y and v are solved for on the K rows alone:

    h = grad_x f - (grad_xy g) v           for all rows: one pass over the data
    out: the rows of the coreset with the largest h, among a random half of them
    in:  the rows with the smallest h, among a random share 2^-u of the others, u uniform in (0, 6)

Slopes promise too much for rows that lie far out, and the smaller the share, the more ordinary its
best row. The number of rows exchanged grows by half after a success and is halved
after a failure. It ends when PATIENCE attempts in a row, the last ones of single rows, have failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from untuned.coreset.inner_solution import train
from untuned.data.batches import Batch
from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import CONVERGED, GO_ON, Info, Solver
from untuned.solvers.numerics.newton_cg import MOST_STEPS

SMALLEST_SHARE = 6.0  # as a power of one half
PATIENCE = 50
ROUGH, FINE = 0.03, 1e-3  # shares of residuals that may be left, of v and of y
GAIN = 1e-5  # relative decrease of f below which an exchange counts as rounding
MOST_LINEAR_STEPS = 1000


class State(NamedTuple):
    """The coreset, its model, and what every row would do to f."""

    x: Tree
    y: Tree
    v: Tree
    chosen: Any  # row numbers; the last row of all where a slot is empty
    hypergrad: Any
    value: Scalar
    exchanged: Scalar  # rows to be exchanged next
    failures: Scalar
    steps: Scalar


@dataclass(frozen=True)
class Exchange(Solver):
    """Exchanges rows between a coreset and the rest, by the hypergradient.

    x0 has 1/K at the K rows to start from and 0 elsewhere; its last entry is 0 and no candidate.
    inner_data has a field `times`, above 0 where a row may be chosen, and g is a sum over rows.

    Parameters
    ----------
    slots : at least K; a coarse number lets runs of different K share what is compiled.
    """

    slots: int

    name: ClassVar[str] = "exchange"
    loops: ClassVar[str] = "double"
    cost: ClassVar[Counts] = Counts(1, None, None, None)

    def init(self, o: Oracles, x: Any, y: Tree) -> State:
        """Start from the coreset of x."""
        ops = o.ops
        zero, none = ops.scalar(0.0, y), ops.counter(0)
        chosen = jax.lax.top_k(x, self.slots)[1]
        chosen = jnp.where(x[chosen] > 0, chosen, x.size - 1)
        return State(
            x=x, y=y, v=ops.zeros_like(y), chosen=chosen, hypergrad=ops.zeros_like(x), value=zero,
            exchanged=jnp.maximum(jnp.sum(x > 0) / 4, zero + 1), failures=none, steps=none,
        )  # fmt: skip

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """Try one exchange; the first step only evaluates."""
        ops = o.ops
        first = state.steps == 0
        chosen = jnp.where(first, state.chosen, self._propose(state, batch.inner.times))
        x = jnp.zeros_like(state.x).at[chosen].set(jnp.max(state.x)).at[-1].set(0.0)
        rows = ops.take(batch.inner, chosen)

        start = (state.y, state.v)
        trained = train(o, x, start, rows, batch, (FINE, ROUGH), MOST_LINEAR_STEPS)
        inner, f, solved = trained
        correction = ops.dot(solved.z, inner.grad)
        value = f.value - correction + jnp.abs(correction)  # at least the true one, to first order
        # A model that is not trained to the end may well be better than one that is, so a value
        # without an inner solution would be too good to be true, and end the search.
        is_solved = inner.newton_steps < MOST_STEPS
        better = first | (is_solved & (value < state.value - GAIN * jnp.abs(state.value)))

        def slopes() -> Any:
            return f.grad_x - o.linear(x, inner.y, batch.inner).cross(solved.z)

        hypergrad = ops.cond(better, slopes, lambda: state.hypergrad)
        most = jnp.maximum(jnp.sum(x > 0) / 2, 1.0)
        exchanged = ops.where(
            better, jnp.minimum(1.5 * state.exchanged, most), 0.5 * state.exchanged
        )
        failures = ops.where(better, ops.counter(0), state.failures + 1)
        moved = state._replace(
            x=x, y=inner.y, v=solved.z, chosen=chosen, hypergrad=hypergrad, value=value
        )
        following = ops.cast(ops.where(better, moved, state), state)._replace(
            exchanged=ops.cast(jnp.maximum(exchanged, 1.0), state.exchanged),
            failures=failures,
            steps=ops.where(first & (inner.newton_steps == MOST_STEPS), 0, state.steps + 1),
        )
        info = Info(
            outer=following.value,
            inner_grad_norm=ops.norm(inner.grad),
            residual_norm=solved.residual_norm,
            hypergrad_norm=ops.norm(following.hypergrad),
            step_x=state.exchanged,
            step_y=1.0,
            step_v=1.0,
            measure=following.value,
            inner_steps=inner.newton_steps,
            linear_steps=solved.steps,
            verdict=ops.where(failures >= PATIENCE, CONVERGED, GO_ON),
            counts=Counts(1, inner.gradients, trained.products, ops.where(better, 1, 0)),
        )
        return following, info

    def _propose(self, state: State, times: Any) -> Any:
        """The coreset with some rows exchanged, the most promising ones first."""
        h, chosen = state.hypergrad, state.chosen
        key = jax.random.fold_in(jax.random.key(0), state.steps)
        u = jax.random.uniform(key, (h.size + self.slots + 1,))
        share = 0.5 ** (SMALLEST_SHARE * u[-1])
        may_enter = (u[: h.size] < share) & (times > 0) & (state.x == 0)
        may_leave = (u[h.size : -1] < 0.5) & (state.x[chosen] > 0)

        most = min(self.slots // 2 + 1, h.size)
        gain, entering = jax.lax.top_k(jnp.where(may_enter, -h, -jnp.inf), most)
        order = jnp.argsort(jnp.where(may_leave, -h[chosen], jnp.inf))
        leaving = chosen[order]
        loss = jnp.where(may_leave[order], h[leaving], -jnp.inf)[:most]
        pays = (jnp.arange(most) < state.exchanged) & (loss > -gain) & jnp.isfinite(gain)
        return leaving.at[:most].set(jnp.where(pays, entering, leaving[:most]))

    def measured_at(self, old: State, new: State) -> tuple[Tree, Tree, Tree]:
        """A step measures where it ends."""
        return new.x, new.y, new.v
