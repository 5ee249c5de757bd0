"""SABA, the single-loop method with a SAGA memory for every block, in plain NumPy.

Written from the specification alone, as a judge of other implementations: clear first, never fast.
The memories are filled by a first x-update on all blocks, which moves along the full directions.
"""

import numpy as np

from reference.series import Tally


class Saga:
    """Memories of one quantity, one per block, and their mean weighted by block size."""

    def __init__(self, values, weights):
        self.memory = list(values)
        self.weights = weights
        self.A = sum(w * m for w, m in zip(weights, values, strict=True))

    def direction(self, b, new):
        delta = new - self.memory[b]
        out = delta + self.A
        self.A = self.A + self.weights[b] * delta
        self.memory[b] = new
        return out


def saba(problem, x, y, T, *, step_size, outer_ratio, rows) -> list[dict]:
    """Make T x-updates; return one record per update.

    rows.inner_blocks and rows.outer_blocks are lists of row indices, [None] for one block of all
    rows; rows.inner_slot() and rows.outer_slot() give the number of the next block to visit.
    """
    x, y = (np.array(z, dtype=np.float64) for z in (x, y))
    v = np.zeros_like(y)
    rho, gamma = step_size, step_size / outer_ratio
    B, C = rows.inner_blocks, rows.outer_blocks
    w_B, w_C = _weights(B), _weights(C)
    records = []
    for t in range(T):
        tally = Tally(problem, rows)

        if t == 0:
            seen_inner = zip(*(at_inner(tally, b, x, y, v) for b in B), strict=True)
            seen_outer = zip(*(tally.f_x_and_f_y(x, y, c) for c in C), strict=True)
            G, H, J = (Saga(values, w_B) for values in seen_inner)
            F_x, F_y = (Saga(values, w_C) for values in seen_outer)
            g_y, g_yy, g_xy, f_x, f_y = (memory.A for memory in (G, H, J, F_x, F_y))
            outer = sum(w * problem.f(x, y, c) for w, c in zip(w_C, C, strict=True))
        else:
            b, c = rows.inner_slot(), rows.outer_slot()
            g_y, g_yy, g_xy = (
                memory.direction(b, new)
                for memory, new in zip((G, H, J), at_inner(tally, B[b], x, y, v), strict=True)
            )
            f_x, f_y = (
                memory.direction(c, new)
                for memory, new in zip((F_x, F_y), tally.f_x_and_f_y(x, y, C[c]), strict=True)
            )
            outer = problem.f(x, y, C[c])

        x_direction = f_x - g_xy
        y, v, x = y - rho * g_y, v - rho * (g_yy - f_y), x - gamma * x_direction
        records.append(
            {"x": x, "y": y, "v": v, "direction": x_direction, "outer": outer, **tally.counts}
        )
    return records


def at_inner(tally, rows, x, y, v):
    return tally.g_y(x, y, rows), tally.g_yy(x, y, v, rows), tally.g_xy(x, y, v, rows)


def _weights(blocks):
    if blocks == [None]:
        return [1.0]
    total = sum(map(len, blocks))
    return [len(block) / total for block in blocks]
