"""SABA: SOBA with the variance of its batches taken out by SAGA memories.

Dagréou, Ablin, Vaiter and Moreau, "A framework for bilevel optimization that enables stochastic
and global variance reduction algorithms". Each side's rows are cut once into blocks, and what each
block gave when it was last visited is kept: M_b, for each of grad_y g, (grad_yy g) v and
(grad_xy g) v (inner blocks), grad_y f and grad_x f (outer blocks). Their mean is A, in which a
block counts by its share w_b of the rows. On a block b, with `new` its value at (x_t, y_t, v_t),

    direction = new - M_b + A,    A += w_b (new - M_b),    M_b = new

stands for the value on all rows, and y, v and x move along these directions as in SOBA, with
constant steps. The first step visits all blocks and moves along A, so no memory is ever empty
(with empty ones the directions of the first epoch grow to nearly twice their length). With one
block per side this is SOBA on all rows with constant steps.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from untuned.data.batches import Batch, on_block, share, slot, slots
from untuned.data.streams import block_count
from untuned.ops import Scalar, Tree
from untuned.problem.data_checks import Pair
from untuned.problem.derivatives import Counts, Inner, Oracles
from untuned.solvers.base import Info, descend_x
from untuned.solvers.hyperparameters import require_count
from untuned.solvers.tuned.base import Tuned, report

MOST_BYTES = 4 * 2**30  # of memories; beyond, a run is refused


class BlockMemory(NamedTuple):
    """What each block of a side gave last, and the mean of it over all rows."""

    rows: Tree
    average: Tree


class State(NamedTuple):
    """What SABA carries; `inner` remembers an `Inner`, `outer` a pair (grad_x f, grad_y f)."""

    x: Tree
    y: Tree
    v: Tree
    inner: BlockMemory
    outer: BlockMemory
    t: Scalar


class Visit(NamedTuple):
    """What a step gets from a side: f's value if it is the outer one, and the directions."""

    value: Scalar
    direction: Tree
    memory: BlockMemory


@dataclass(frozen=True)
class SABA(Tuned):
    """Variance-reduced simultaneous steps; parameters as in `Tuned`, and

    inner_slots, outer_slots : blocks of each side. `minimize` sets them from the rows and
        batch_size; they are to be given only where the method is stepped by hand.
    """

    inner_slots: int = 1
    outer_slots: int = 1

    name: ClassVar[str] = "saba"
    needs_blocks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_count(self, "inner_slots", "outer_slots")

    @property
    def cost(self) -> Counts:
        """Evaluations per step; the first step makes one for every block instead."""
        return Counts(1, 1, 1, 1)

    def for_run(self, rows: Pair, batch_sizes: Pair, max_steps: int) -> SABA:
        """This method for the blocks of a run."""
        inner, outer = map(block_count, rows, batch_sizes)
        return dataclasses.replace(self, inner_slots=inner, outer_slots=outer)

    def init(self, o: Oracles, x: Tree, y: Tree) -> State:
        """Start at (x, y) with v = 0; the first step fills the memories."""
        self._check_memory(o, x, y)
        zero = o.ops.zeros_like
        inner, outer = Inner(zero(y), zero(y), zero(x)), (zero(x), zero(y))
        return State(
            x,
            y,
            zero(y),
            BlockMemory(o.ops.repeat(inner, self.inner_slots), inner),
            BlockMemory(o.ops.repeat(outer, self.outer_slots), outer),
            o.ops.counter(0),
        )

    def _check_memory(self, o: Oracles, x: Tree, y: Tree) -> None:
        def size(tree: Tree) -> int:
            leaves = o.ops.flatten(tree)[0]
            return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)

        needed = self.inner_slots * (size(x) + 2 * size(y)) + self.outer_slots * (size(x) + size(y))
        if needed > MOST_BYTES:
            raise ValueError(
                f"SABA would need {needed / 2**30:.1f} GiB to remember what each of "
                f"{self.inner_slots} inner and {self.outer_slots} outer blocks gave, and at most "
                f"{MOST_BYTES / 2**30:g} GiB are allowed; give a larger batch_size, which makes "
                "fewer blocks, or use 'soba', which remembers nothing."
            )

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """The three updates, simultaneous, along the variance-reduced directions."""
        ops, (x, y, v, inner, outer, t) = o.ops, state
        rates = self.rates(o, t, y)
        zero = ops.scalar(0.0, y)

        def at_inner(rows: Tree) -> tuple[Scalar, Tree]:
            return zero, o.inner(x, y, v, rows)

        def at_outer(rows: Tree) -> tuple[Scalar, Tree]:
            f = o.outer(x, y, rows)
            return ops.cast(f.value, zero), (f.grad_x, f.grad_y)

        f = _visit(o, outer, batch.outer, t == 0, at_outer, zero)
        g = _visit(o, inner, batch.inner, t == 0, at_inner, zero)
        f_x, f_y = f.direction
        g_y, product, cross = g.direction
        residual = ops.sub(product, f_y)
        hypergrad = ops.sub(f_x, cross)
        x, h_norm = descend_x(o, rates.x, hypergrad, ops.norm(hypergrad), x)
        # The first step takes its blocks by their numbers, and none from the stream.
        drawn = ops.where(t == 0, 0, 1)
        on_inner, on_outer = (
            ops.where(t == 0, slots(side), 1) for side in (batch.inner, batch.outer)
        )
        info = report(
            o,
            rates,
            outer=f.value,
            inner_grad_norm=ops.norm(g_y),
            residual_norm=ops.norm(residual),
            hypergrad_norm=h_norm,
            v=v,
            inner_steps=1,
            linear_steps=1,
            inner_drawn=drawn,
            outer_drawn=drawn,
            counts=Counts(on_outer, on_inner, on_inner, on_inner),
        )
        y = ops.axpy(-rates.y, g_y, y)
        v = ops.axpy(-rates.v, residual, v)
        return State(x, y, v, g.memory, f.memory, t + 1), info

    def measured_at(self, old: State, new: State) -> tuple[Tree, Tree, Tree]:
        """f is taken before anything moves."""
        return old.x, old.y, old.v


def _visit(
    o: Oracles, memory: BlockMemory, side: Tree, first: Scalar, evaluate: Callable, zero: Scalar
) -> Visit:
    """Visit the block that was drawn, or all blocks if this is the first step."""
    ops, count = o.ops, slots(side)

    def one(seen: Visit, k: Scalar) -> Visit:
        rows, average = seen.memory
        b = ops.where(first, k, slot(side))
        part = share(ops, side, b)
        value, new = on_block(ops, side, b, evaluate)
        old, rows = ops.swap_row(rows, b, new)
        change = ops.sub(new, old)
        return Visit(
            seen.value + ops.cast(ops.where(first, part, 1.0), zero) * value,
            ops.axpy(1.0, change, average),
            BlockMemory(rows, ops.axpy(part, change, average)),
        )

    start = Visit(zero, memory.average, memory)
    if count == 1:
        return one(start, 0)
    seen, _ = ops.while_loop(
        lambda carry: carry[1] < ops.where(first, count, 1),
        lambda carry: (one(*carry), carry[1] + 1),
        (start, ops.counter(0)),
    )
    # From empty memories every direction but the mean of all is that of some blocks only.
    return seen._replace(direction=ops.where(first, seen.memory.average, seen.direction))
