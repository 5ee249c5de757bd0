"""F2SA-2: first-order like F2SA, with a difference whose error is of second order.

The formula is that of arXiv 2509.02937, which was read; steps and draws are our choice. With y_+
near the minimizer of g + nu f and y_- near that of g - nu f; per step, T times with fresh rows,
which both share so that their noise cancels in the difference,

    y_+ <- y_+ - rho (grad_y g + nu grad_y f)(x, y_+)
    y_- <- y_- - rho (grad_y g - nu grad_y f)(x, y_-)

then, again with fresh rows,

    h = (grad_x (g + nu f)(x, y_+) - grad_x (g - nu f)(x, y_-)) / (2 nu),    x <- x - gamma h

h is off by order nu^2 where F2SA with nu = 1 / lambda is off by order nu, at the same cost.
(y_- - y_+) / (2 nu) estimates v, and the mean of the two is y. Steps are constant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from untuned.data.batches import Batch, draw
from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Counts, Oracles
from untuned.solvers.base import Info, descend_x
from untuned.solvers.hyperparameters import require_count, require_positive
from untuned.solvers.tuned.base import Tuned, report


class State(NamedTuple):
    """What F2SA-2 carries: y is the mean of `plus` and `minus`."""

    x: Tree
    y: Tree
    v: Tree
    plus: Tree
    minus: Tree
    t: Scalar


@dataclass(frozen=True)
class F2SA2(Tuned):
    """First-order method with a symmetric difference; parameters as in `Tuned`, and

    inner_steps : steps on y_+ and y_- per step of x.
    nu : how far the two are pulled apart. To be tuned.
    """

    inner_steps: int = 10
    nu: float = 0.1

    name: ClassVar[str] = "f2sa-2"
    loops: ClassVar[str] = "double"
    to_tune: ClassVar[tuple[str, ...]] = ("step_size", "outer_ratio", "nu")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(self, "nu")
        require_count(self, "inner_steps")

    @property
    def inner_draws(self) -> int:
        """One per step on y, and one for x."""
        return self.inner_steps + 1

    @property
    def outer_draws(self) -> int:
        """One per step on y, and one for x."""
        return self.inner_steps + 1

    @property
    def cost(self) -> Counts:
        """Evaluations per step; two of the inner gradients are in x."""
        both = 2 * self.inner_steps + 2
        return Counts(outer_grad=both, inner_grad=both)

    def init(self, o: Oracles, x: Tree, y: Tree) -> State:
        """Start at (x, y) with both ends at y."""
        return State(x, y, o.ops.zeros_like(y), y, y, o.ops.counter(0))

    def step(self, o: Oracles, state: State, batch: Batch) -> tuple[State, Info]:
        """Both ends, then x."""
        ops, x = o.ops, state.x
        rates = self.rates(o, state.t, state.y)

        def pulled(y: Tree, k: Scalar, sign: float) -> Tree:
            f = o.outer(x, y, draw(ops, batch.outer, k))
            g = o.inner_grad(x, y, draw(ops, batch.inner, k))
            return ops.axpy(sign * self.nu, f.grad_y, g)

        def descend(carry: tuple) -> tuple:
            plus, minus, _, k = carry
            gradient = pulled(plus, k, 1.0)
            minus = ops.axpy(-rates.y, pulled(minus, k, -1.0), minus)
            return ops.axpy(-rates.y, gradient, plus), minus, gradient, k + 1

        start = (state.plus, state.minus, ops.zeros_like(state.y), ops.counter(0))
        ended = ops.while_loop(lambda carry: carry[-1] < self.inner_steps, descend, start)
        plus, minus, gradient, last = ended
        outer_rows, inner_rows = draw(ops, batch.outer, last), draw(ops, batch.inner, last)
        above, below = (o.outer(x, y, outer_rows) for y in (plus, minus))
        (g_above, _), (g_below, _) = (o.inner_grads(x, y, inner_rows) for y in (plus, minus))
        halfway = lambda a, b: ops.tree_map(lambda p, q: (p + q) / 2, a, b)
        direction = ops.axpy(
            1 / (2 * self.nu), ops.sub(g_above, g_below), halfway(above.grad_x, below.grad_x)
        )
        x, h_norm = descend_x(o, rates.x, direction, ops.norm(direction), x)
        v = ops.axpy(1 / (2 * self.nu), ops.sub(minus, plus), ops.zeros_like(plus))
        info = report(
            o,
            rates,
            outer=(above.value + below.value) / 2,
            inner_grad_norm=ops.norm(gradient),
            hypergrad_norm=h_norm,
            v=v,
            inner_steps=self.inner_steps,
            inner_drawn=self.inner_draws,
            outer_drawn=self.outer_draws,
            counts=self.cost,
        )
        return State(x, halfway(plus, minus), v, plus, minus, state.t + 1), info
