"""What the twins of the single-loop and double-loop methods share: counted draws and
evaluations, and the two truncated Neumann series for (grad_yy g)^-1 b.

Written from the specification alone, as a judge of other implementations: clear first, never fast.
"""

from math import floor


class Tally:
    """The problem and its two row streams during one step, counting each use.

    A value of f is not counted; f_x and f_y asked for together count as one outer gradient.
    """

    def __init__(self, problem, rows):
        self._problem, self._rows = problem, rows
        names = ("inner_grad", "outer_grad", "hvp", "cross", "inner_draws", "outer_draws")
        self.counts = dict.fromkeys(names, 0)

    def inner(self):
        """The next rows of the inner stream."""
        self.counts["inner_draws"] += 1
        return self._rows.inner()

    def outer(self):
        """The next rows of the outer stream."""
        self.counts["outer_draws"] += 1
        return self._rows.outer()

    def f(self, x, y, rows):
        return float(self._problem.f(x, y, rows))

    def f_x(self, x, y, rows):
        self.counts["outer_grad"] += 1
        return self._problem.f_x(x, y, rows)

    def f_y(self, x, y, rows):
        self.counts["outer_grad"] += 1
        return self._problem.f_y(x, y, rows)

    def f_x_and_f_y(self, x, y, rows):
        self.counts["outer_grad"] += 1
        return self._problem.f_x(x, y, rows), self._problem.f_y(x, y, rows)

    def g_y(self, x, y, rows):
        self.counts["inner_grad"] += 1
        return self._problem.g_y(x, y, rows)

    def g_yy(self, x, y, v, rows):
        self.counts["hvp"] += 1
        return self._problem.g_yy(x, y, v, rows)

    def g_xy(self, x, y, v, rows):
        self.counts["cross"] += 1
        return self._problem.g_xy(x, y, v, rows)


def hia(tally, x, y, b, *, n, sigma, uniform):
    """One random term of the series: n sigma (I - sigma H)^p b, with p = floor(uniform * n).

    Over the n values of p its mean is sigma times the sum of the powers 0 to n - 1.
    """
    p = floor(uniform * n)
    w = b
    for _ in range(p):
        w = w - sigma * tally.g_yy(x, y, w, tally.inner())
    return n * sigma * w


def shia(tally, x, y, b, *, n, sigma):
    """The whole series: sigma times the sum of the powers 0 to n, so n + 1 terms, n products."""
    w = z = b
    for _ in range(n):
        w = w - sigma * tally.g_yy(x, y, w, tally.inner())
        z = z + w
    return sigma * z
