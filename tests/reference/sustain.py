"""SUSTAIN in plain NumPy: as MRBO, with hypergradients by the joint randomly truncated series.

The form with plain first directions. Written from the specification alone, as a judge.
"""

from math import floor

from .joint import hia, momentum


def sustain(
    problem, x, y, T, *, step_size, outer_ratio, rows, uniform, linear_steps=10, eta=0.5
) -> list[dict]:
    """Make T x-updates; return one record per update.

    uniform(t), in [0, 1), gives p = floor(uniform(t) * linear_steps), shared by both points.
    Steps: y step_size/(t+1)^(1/3), x (step_size/outer_ratio)/(t+1)^(1/3); the series keeps
    step_size itself. eta_t = eta/(t+1)^(2/3), at most 1, and 1 at t = 0.
    Draws: inner (both gradients and both cross products), outer, then one inner per product.
    In a record u is the y-direction, direction the x-direction, v belongs to (x_t, y_t).
    """

    def solve(oracle, t, points, rhs):
        p = floor(uniform(t) * linear_steps)
        batches = [oracle.inner() for _ in range(p)]
        return hia(oracle, points, rhs, batches, step_size, linear_steps)

    return momentum(
        problem, x, y, T,
        step_size=step_size, outer_ratio=outer_ratio, rows=rows, eta=eta, solve=solve,
    )  # fmt: skip
