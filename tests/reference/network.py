"""`auto` on minibatches of a network in plain NumPy (docs/auto.md), and a network to run it on."""

from dataclasses import dataclass

import numpy as np


def _sigmoid(z):
    return 0.5 * (1.0 + np.tanh(0.5 * z))


@dataclass(frozen=True, eq=False)
class Network:
    """Rows (a, b) with loss (w tanh(W a) - b)^2 / 2; g weighs row i by sigmoid(x_i).

    f is the mean loss of trusted rows, and `penalty` |x|^2 / 2 besides.
    """

    inner: tuple
    outer: tuple
    y0: tuple  # W and w
    penalty: float = 0.0
    start: float = 0.0  # of every entry of x

    @property
    def x0(self):
        return np.full(len(self.inner[1]), self.start)

    def gradients(self, y, data, rows):
        """Each row's gradient in W and in w, and its loss."""
        (W, w), a, b = y, data[0][rows], data[1][rows]
        hidden = np.tanh(a @ W.T)
        error = hidden @ w - b
        in_w = error[:, None] * hidden
        in_W = (error[:, None] * w * (1 - hidden**2))[:, :, None] * a[:, None, :]
        return in_W, in_w, error**2 / 2

    def f_grads(self, x, y, rows):
        in_W, in_w, loss = self.gradients(y, self.outer, rows)
        value = loss.mean() + self.penalty * np.sum(x**2) / 2
        return value, self.penalty * x, (in_W.mean(0), in_w.mean(0))

    def g_y(self, x, y, rows):
        in_W, in_w, _ = self.gradients(y, self.inner, rows)
        weights = _sigmoid(x[rows]) / len(rows)
        return np.tensordot(weights, in_W, 1), weights @ in_w

    def g_xy(self, x, y, v, rows):
        in_W, in_w, _ = self.gradients(y, self.inner, rows)
        along = (in_W * v[0]).sum((1, 2)) + in_w @ v[1]
        weight = _sigmoid(x[rows])
        out = np.zeros_like(x)
        np.add.at(out, rows, weight * (1 - weight) * along / len(rows))
        return out

    def g_yy(self, x, y, v, rows):
        """By differences, which are exact enough to judge."""
        far = 1e-6
        ends = [
            self.g_y(x, tuple(p + s * far * q for p, q in zip(y, v, strict=True)), rows)
            for s in (1, -1)
        ]
        return tuple((p - q) / (2 * far) for p, q in zip(*ends, strict=True))


def made(seed=0, rows=(40, 16), sizes=(4, 5), penalty=0.0, start=0.0):
    random = np.random.default_rng(seed)
    sides = []
    for count in rows:
        a = random.standard_normal((count, sizes[0]))
        sides.append((a, np.sin(a[:, 0]) + 0.3 * random.standard_normal(count)))
    y0 = (0.5 * random.standard_normal(sizes[::-1]), 0.5 * random.standard_normal(sizes[1]))
    return Network(*sides, y0, penalty, start)


def run(problem, steps, inner_batches, outer_batches):
    """The x, the averaged y and v after each step; and c, where batches of f are of two halves.

    They are but where f depends on x itself.
    """
    x, y = problem.x0, list(problem.y0)
    average = list(y)
    m, s = ([np.zeros_like(part) for part in y] for _ in range(2))
    parts = 1 if problem.penalty else 2
    running = [[np.zeros_like(part) for part in y] for _ in range(parts)]
    way, moves = np.zeros_like(x), [np.zeros_like(x) for _ in range(parts)]
    heard, evidence, used = 0.0, [], []
    rates = [0.03 * np.sqrt(np.mean(part**2)) for part in y]
    reach = 0.1 * np.sqrt(np.mean(x**2)) or 1.0
    sums, usual, curvature, slope, count = np.zeros_like(x), 0.0, 0.0, 0.0, 0
    falls, quickest, settled = 0.0, 0.0, False
    path = []

    def adam(gradient):
        nonlocal count
        count += 1
        for k, part in enumerate(gradient):
            m[k] = 0.9 * m[k] + 0.1 * part
            s[k] = 0.999 * s[k] + 0.001 * part**2
            step = m[k] / (1 - 0.9**count) / np.sqrt(s[k] / (1 - 0.999**count))
            y[k] = y[k] - rates[k] * step

    for t in range(steps):
        adam(problem.g_y(x, tuple(y), inner_batches[2 * t]))
        _, f_x, f_y = problem.f_grads(x, tuple(average), outer_batches[t])
        turn, v = t % parts, []
        a = running[turn]
        for k, part in enumerate(f_y):
            a[k] = 0.9 * a[k] + 0.1 * part
            here = s[k] / (1 - 0.999**count)
            v.append(a[k] / np.sqrt(here + 0.01 * here.mean()))
        falls = 0.9 * falls + 0.1 * sum((p * q).sum() for p, q in zip(v, m, strict=True))
        quickest = max(quickest, falls)
        settled = settled or (t >= 10 and falls <= 0.1 * quickest)
        rows = inner_batches[2 * t + 1]
        h = -problem.g_xy(x, tuple(y), v, rows)
        if problem.penalty:
            hvp = problem.g_yy(x, tuple(y), v, rows)
            curved = sum((p * q).sum() for p, q in zip(v, hvp, strict=True))
            sloped = sum((p * q).sum() for p, q in zip(v, f_y, strict=True))
            curvature = 0.99 * curvature + 0.01 * curved
            slope = 0.99 * slope + 0.01 * sloped
            h = f_x + max(slope / abs(curvature), 0.0) * h
        adam(problem.g_y(x, tuple(y), rows))
        average = [p + 10 / (10 + t) * (q - p) for p, q in zip(average, y, strict=True)]
        if np.any(h):
            before, all_move = usual, np.mean(h != 0) >= 0.5
            usual = usual + 10 / (10 + t) * (np.mean(h[h != 0] ** 2) - usual)
            if parts == 2:
                here, both = h != 0, sum(moves)
                said = np.sum((h / np.sqrt(usual))[here] * (both[here] - both[here].mean()))
                if turn == 0:
                    heard = said
                else:  # (<h_1, m> + <h_2, m>) / 2 - (<h_1, m> - <h_2, m>) / 2k with k = 1/2
                    evidence.append((heard + said) / 2 - (heard - said))
            if settled or not all_move:
                sums = sums * (usual / before if all_move and before else 1) + h**2
                move = -reach * h / np.sqrt(sums + usual)
                if parts == 2:
                    move = move * (1.5, 0.5)[turn]
                way = way + move
                moves[turn] = np.where(h != 0, move, moves[turn])
        gain = 0.0
        for e in evidence:
            gain = max(0.0, gain - e)
        squares = np.sum(np.square(evidence))
        used.append(min(1.0, gain / np.sqrt(squares)) if squares else 1.0)
        x = problem.x0 + used[-1] * way
        path.append((x, list(average), v))
    return path, used
