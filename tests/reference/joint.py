"""What the baseline twins share: counted oracles, the two Neumann series, the momentum loop.

Written from the methods' specification alone, as a judge: clear first, never fast. Signs:
v solves (grad_yy g) v = grad_y f, and the hypergradient is grad_x f - (grad_xy g) v.
"""

import numpy as np


class Oracle:
    """The problem's derivatives and the two row streams, counted until the next reset.

    rows.inner() and rows.outer() give each side's next index array; None means all rows.
    """

    def __init__(self, problem, rows):
        self.problem = problem
        self.rows = rows
        self.reset()

    def reset(self):
        names = ("inner_grad", "outer_grad", "hvp", "cross", "inner_draws", "outer_draws")
        self.counts = dict.fromkeys(names, 0)

    def inner(self):
        self.counts["inner_draws"] += 1
        return self.rows.inner()

    def outer(self):
        self.counts["outer_draws"] += 1
        return self.rows.outer()

    def inner_grad(self, x, y, B):
        self.counts["inner_grad"] += 1
        return self.problem.g_y(x, y, B)

    def outer_grad(self, x, y, C):
        """(grad_x f, grad_y f): one evaluation, even where a method needs only one of them."""
        self.counts["outer_grad"] += 1
        return self.problem.f_x(x, y, C), self.problem.f_y(x, y, C)

    def hvp(self, x, y, v, B):
        self.counts["hvp"] += 1
        return self.problem.g_yy(x, y, v, B)

    def cross(self, x, y, v, B):
        self.counts["cross"] += 1
        return self.problem.g_xy(x, y, v, B)


def shia(oracle, points, rhs, batches, sigma):
    """sigma * sum_{q=0}^{n} (I - sigma H)^q b at each point, n = len(batches): n + 1 terms.

    points are (x, y) pairs, rhs their b; product number i uses batches[i] at every point.
    """
    w, z = list(rhs), list(rhs)
    for B in batches:
        for i, (x, y) in enumerate(points):
            w[i] = w[i] - sigma * oracle.hvp(x, y, w[i], B)
            z[i] = z[i] + w[i]
    return [sigma * total for total in z]


def hia(oracle, points, rhs, batches, sigma, n):
    """n * sigma * (I - sigma H)^p b at each point, p = len(batches), drawn by the caller."""
    w = list(rhs)
    for B in batches:
        for i, (x, y) in enumerate(points):
            w[i] = w[i] - sigma * oracle.hvp(x, y, w[i], B)
    return [n * sigma * last for last in w]


def momentum(problem, x, y, T, *, step_size, outer_ratio, rows, eta, solve) -> list[dict]:
    """The loop of MRBO and SUSTAIN; solve(oracle, t, points, rhs) gives v at each point.

    At t = 0 the previous point is the current one and eta_0 = 1: both directions are plain.
    """
    x, y = (np.array(z, dtype=np.float64) for z in (x, y))
    old_x, old_y = x, y
    u, d = np.zeros_like(y), np.zeros_like(x)
    oracle = Oracle(problem, rows)
    records = []
    for t in range(T):
        oracle.reset()
        eta_t = 1.0 if t == 0 else min(1.0, eta / (t + 1) ** (2 / 3))
        rho = step_size / (t + 1) ** (1 / 3)
        gamma = step_size / outer_ratio / (t + 1) ** (1 / 3)

        B = oracle.inner()
        G = oracle.inner_grad(x, y, B)
        old_G = oracle.inner_grad(old_x, old_y, B)

        C = oracle.outer()
        f_x, f_y = oracle.outer_grad(x, y, C)
        old_f_x, old_f_y = oracle.outer_grad(old_x, old_y, C)
        v, old_v = solve(oracle, t, [(x, y), (old_x, old_y)], [f_y, old_f_y])
        D = f_x - oracle.cross(x, y, v, B)
        old_D = old_f_x - oracle.cross(old_x, old_y, old_v, B)
        outer = problem.f(x, y, C)

        u = G + (1 - eta_t) * (u - old_G)
        d = D + (1 - eta_t) * (d - old_D)

        # Simultaneous: D above was taken at y_t, not at y_{t+1}.
        old_x, old_y = x, y
        y = y - rho * u
        x = x - gamma * d
        records.append(
            {
                "t": t,
                "x": x,
                "y": y,
                "v": v,
                "u": u,
                "direction": d,
                "outer": float(outer),
                **oracle.counts,
            }
        )
    return records
