"""A v step of D-TFBO on JAX against one bare Hessian-vector product, Covtype, full batch."""

from __future__ import annotations

from functools import partial

import numpy as np

import covtype
from common import Row, alternate, main, ratio_row, seconds_of
from untuned.solvers import DTFBO

FEW, MANY = 5, 45


def measure(quick: bool) -> list[Row]:
    """The ratio, with a v step as the slope between outer iterations with few and with many."""
    problem = covtype.problem()
    # Stepped by hand: `minimize` would compile, for seconds, between the two ends of a slope.
    few, many = (
        covtype.steps_of(DTFBO(inner_steps=1, linear_steps=count), problem, 1)
        for count in (FEW, MANY)
    )
    products = {mode: covtype.bare_products(problem, MANY - FEW, mode) for mode in ("jvp", "vjp")}
    sides = {"many": many, "few": few, **products}
    timed = {name: partial(seconds_of, side) for name, side in sides.items()}
    times = alternate(timed, rounds=7 if quick else 31)
    step = (times["many"] - times["few"]) / (MANY - FEW)
    product = min((times[mode] for mode in products), key=np.median) / (MANY - FEW)
    name = "JAX D-TFBO v step / bare Hessian-vector product, Covtype, full batch"
    return [ratio_row(name, 1.10, step, product)]


if __name__ == "__main__":
    main(measure)
