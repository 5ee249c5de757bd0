"""StocBiO: inner steps from where y was, then a Neumann series for v.

Ji, Yang and Liang, "Bilevel optimization: convergence analysis and enhanced design". Per step,

    T times, fresh rows:  y <- y - rho grad_y g
    v = sigma sum_{q=0}^{n} (I - sigma grad_yy g)^q grad_y f,   fresh rows for every factor
    x <- x - gamma (grad_x f - (grad_xy g) v)

with constant steps. The paper lets the Hessian batches shrink geometrically; here they do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from untuned.ops import Scalar, Tree
from untuned.problem.derivatives import Oracles
from untuned.solvers.numerics.neumann import Product, shia
from untuned.solvers.tuned.amigo import AmIGO


@dataclass(frozen=True)
class StocBiO(AmIGO):
    """Warm-started y, v by a Neumann series; parameters as in `Tuned`, and

    inner_steps, linear_steps : steps on y and products of the series per step of x.
    """

    name: ClassVar[str] = "stocbio"

    def solve_linear(
        self, o: Oracles, product: Product, f_y: Tree, v: Tree, sigma: Scalar
    ) -> tuple[Tree, Scalar]:
        """v from nothing; the series has no residual to report."""
        return shia(o.ops, product, f_y, self.linear_steps, sigma), o.ops.scalar(0.0, v)
