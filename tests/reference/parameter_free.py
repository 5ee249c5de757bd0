"""`auto` on minibatches in plain NumPy: distance over gradients, and going back (docs/auto.md)."""

import numpy as np

WARM_UP, MANY, CUT = 100, 20, 4.0


def run(problem, steps, inner_batches, outer_batches):
    """The x, y and v after each step, and how often the run went back."""
    x, y = problem.x0.copy(), problem.y0.copy()
    start_x, start_y = x.copy(), y.copy()
    now = {
        "x": x, "y": y, "v": np.zeros_like(y), "t": 0, "X": 0.0, "Y": 0.0, "V": 0.0,
        "dx": 1e-3 * max(np.linalg.norm(x), x.size**0.5),
        "dy": 1e-4 * max(np.linalg.norm(y), y.size**0.5),
    }  # fmt: skip
    kept = [now, now]  # the older place and the newer
    c, path, back = 1.0, [], 0
    for k in range(steps):
        x, y, v, t = now["x"], now["y"], now["v"], now["t"]
        inner, outer = inner_batches[k], outer_batches[k]
        gradient = problem.g_y(x, y, inner)
        residual = problem.g_yy(x, y, v, inner) - problem.f_y(x, y, outer)
        h = problem.f_x(x, y, outer) - problem.g_xy(x, y, v, inner)
        new = dict(now, t=t + 1)
        new["X"] = now["X"] + (np.sum(h**2) if t >= WARM_UP else 0.0)
        new["Y"] = now["Y"] + np.sum(gradient**2)
        new["V"] = now["V"] + np.sum(residual**2)
        new["dx"] = max(now["dx"], np.linalg.norm(x - start_x))
        new["dy"] = max(now["dy"], np.linalg.norm(y - start_y))
        beta = new["dy"] / new["Y"] ** 0.5
        alpha = c * new["dx"] / new["X"] ** 0.5 if new["X"] > 0 else 0.0
        new["x"], new["y"], new["v"] = x - alpha * h, y - beta * gradient, v - beta * residual
        bad = t >= MANY and (
            new["Y"] > 2 * now["Y"]
            or new["V"] > 2 * now["V"]
            or (t >= WARM_UP + MANY and new["X"] > 2 * now["X"])
        )
        if bad:
            new, c, back = kept[0], c / CUT, back + 1
            kept = [kept[0], kept[0]]
        elif t % WARM_UP == 0:
            kept = [kept[1], now]
        now = new
        path.append((now["x"], now["y"], now["v"]))
    return path, back
