"""Random bilevel programs through `minimize`, judged from outside: `python fuzz/programs.py`.

The judges are: JAX compiled in float64 with exact solutions of the inner problem, SciPy that goes
on from where a run ended, the other library, and the same run once more, or cut and resumed.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.flatten_util import ravel_pytree
from scipy import optimize

import hunt
import made_programs as made
import untuned
from hunt import expect
from untuned.run.result import STATUSES

SLOWEST = 150  # seconds for one seed
LAYOUTS = ("plain", "fortran", "strided", "read-only")


class Judge:
    """A program in float64 with all rows, its inner problem solved to the last digit."""

    def __init__(self, program: made.Program):
        words = made.on_jax()
        with jax.enable_x64(True):
            x, self._x_tree = ravel_pytree(jax.tree.map(jnp.asarray, program.x0))
            y, self._y_tree = ravel_pytree(jax.tree.map(jnp.asarray, program.y0))
            rows = jax.tree.map(jnp.asarray, program.data)

            def flat(function, batch):
                more = () if batch is None else (batch,)
                return lambda x, y: function(self._x_tree(x), self._y_tree(y), *more)

            f, g = flat(program.outer(words), rows[0]), flat(program.inner(words), rows[1])
            self.f = jax.jit(jax.value_and_grad(f, (0, 1)))
            self.g = jax.jit(lambda x, y: (g(x, y), jax.grad(g, 1)(x, y), jax.hessian(g, 1)(x, y)))
            self.cross = jax.jit(lambda x, y, v: jax.grad(lambda x: jax.grad(g, 1)(x, y) @ v)(x))
        self.x0, self.y0 = np.array(x), np.array(y)

    def flat(self, tree: Any) -> np.ndarray:
        leaves = jax.tree.leaves(as_numpy(tree))
        return np.concatenate([np.ravel(leaf).astype(np.float64) for leaf in leaves])

    def at(self, x: np.ndarray, y: np.ndarray, v: np.ndarray) -> dict[str, float]:
        """What a record says of a point, computed anew."""
        with jax.enable_x64(True):
            value, (in_x, in_y) = self.f(x, y)
            _, slope, curvature = self.g(x, y)
            whole = in_x - self.cross(x, y, v)
            return {
                "outer": float(value), "inner_grad_norm": float(jnp.linalg.norm(slope)),
                "hypergrad_norm": float(jnp.linalg.norm(whole)),
                "residual_norm": float(jnp.linalg.norm(curvature @ v - in_y)),
            }  # fmt: skip

    def solve(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """y*(x), by Newton's method with SciPy's trust region around it where it does not hold."""
        with jax.enable_x64(True):
            for _ in range(60):
                value, slope, curvature = map(np.asarray, self.g(x, y))
                if not np.isfinite(slope).all() or np.abs(slope).max(initial=0) < 1e-13:
                    break
                try:
                    step = np.linalg.solve(curvature, -slope)
                except np.linalg.LinAlgError:
                    break
                share = 1.0
                while share > 1e-9 and not float(self.g(x, y + share * step)[0]) <= value:
                    share /= 2
                if share <= 1e-9 or np.abs(share * step).max() < 1e-15 * np.abs(y).max(initial=1):
                    break
                y = y + share * step
        return y

    def phi(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """The value function and its gradient."""
        x = np.asarray(x, np.float64)
        y = self.solve(x, self.y0)
        with jax.enable_x64(True):
            value, (in_x, in_y) = self.f(x, y)
            curvature = np.asarray(self.g(x, y)[2])
            v = np.linalg.lstsq(curvature, np.asarray(in_y), rcond=None)[0]
            gradient = np.asarray(in_x) - np.asarray(self.cross(x, y, v))
        return float(value), gradient

    def better(self, x: np.ndarray, bounds: Any) -> float:
        """The least value that SciPy finds from x."""
        best = [np.inf]

        def watched(x):
            value, gradient = self.phi(x)
            best[0] = min(best[0], value if np.isfinite(value) else np.inf)
            return value, gradient

        with np.errstate(all="ignore"):
            optimize.minimize(
                watched, x, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 40}
            )
        return best[0]


def as_numpy(tree: Any) -> Any:
    plain = lambda leaf: leaf.detach().numpy() if isinstance(leaf, torch.Tensor) else leaf
    return jax.tree.map(lambda leaf: np.asarray(plain(leaf)), tree)


def given(tree: Any, library: str, dtype: str, rng: np.random.Generator) -> Any:
    """A tree of NumPy's arrays as a user of a library has it, in any layout of memory."""

    is_foreign = rng.random() < 0.04  # of the other byte order

    def one(array: np.ndarray) -> Any:
        array = np.asarray(array)
        array = array.astype(dtype) if array.dtype.kind == "f" else array.copy()
        layout = rng.choice(LAYOUTS)
        if library == "torch":
            tensor = torch.tensor(array)
            return tensor.T.contiguous().T if layout == "fortran" and tensor.ndim == 2 else tensor
        if library == "jax":
            if dtype == "float32" and array.dtype == np.int64:
                array = array % 7000  # where JAX itself has 32 bits; the remainder by 7 stays
            with jax.enable_x64(dtype == "float64"):
                return jnp.asarray(array)
        if layout == "fortran":
            return np.asfortranarray(array)
        if layout == "strided" and array.ndim:
            return np.repeat(array, 2, axis=0)[::2]
        if is_foreign and array.dtype.kind in "fi":
            return array.astype(array.dtype.newbyteorder(">"))
        array.setflags(write=layout != "read-only")
        return array

    return jax.tree.map(one, tree)


def arguments(program: made.Program, library: str, dtype: str, rng: np.random.Generator) -> dict:
    """Those of minimize that say what the program is."""
    own_rule = library != "torch" and rng.random() < 0.05
    words = made.on_torch() if library == "torch" else made.on_jax(own_rule)
    sides = [given(side, library, dtype, rng) for side in program.data]
    return {
        "outer": program.outer(words), "inner": program.inner(words),
        "x0": given(program.x0, library, dtype, rng), "y0": given(program.y0, library, dtype, rng),
    } | dict(zip(("outer_data", "inner_data"), sides, strict=True))  # fmt: skip


def bits(tree: Any) -> list:
    return [
        (leaf.dtype.str, leaf.shape, leaf.tobytes()) for leaf in jax.tree.leaves(as_numpy(tree))
    ]


def run(asked: dict) -> untuned.Result | None:
    """The result, or None where a sentence refused; any other error is a finding."""
    before = [bits(asked[name]) for name in ("x0", "y0", "outer_data", "inner_data")]
    try:
        result = untuned.minimize(**asked)
    except Exception as error:
        hunt.refusal(error)
        result = None
    after = [bits(asked[name]) for name in ("x0", "y0", "outer_data", "inner_data")]
    expect(before == after, "the user's arrays were changed")
    return result


def check(seed: int) -> None:
    rng = np.random.default_rng([seed, 39])
    program = made.draw(rng)
    library = str(rng.choice(["numpy", "jax", "torch"]))
    dtype = str(rng.choice(["float32", "float64"]))
    names = untuned.solvers.names()
    method = "auto" if rng.random() < 0.6 else str(rng.choice(names))
    rows = 0 if program.data[0] is None else len(program.data[1]["t"])
    batch = None
    if rows and rng.random() < (0.15 if method == "auto" else 0.6):
        batch = (int(rng.integers(1, rows)), int(rng.integers(1, len(program.data[0]["t"]))))
    asked = arguments(program, library, dtype, rng) | {
        "method": method, "batch_size": batch, "max_steps": 150 if method == "auto" else 40,
        "seed": seed, "constraint": _constraint(rng),
        "tol": 1e-3 if rng.random() < 0.2 else None,
    }  # fmt: skip
    is_limited = rng.random() < 0.1
    if is_limited:
        asked["max_seconds"] = 0.3
    told = f"{library} {dtype} {method} batch={batch} {asked['constraint']} | {program.told}"
    try:
        _check(program, asked, dtype, is_limited, rng)
    except hunt.FoundError as error:
        raise hunt.FoundError(f"{error} | {told}") from error


def _constraint(rng: np.random.Generator) -> Any:
    if rng.random() < 0.7:
        return None
    return [(-1.0, 2.0), "nonnegative", (-0.1, 0.1), "simplex"][rng.integers(4)]


def _check(program, asked, dtype, is_limited, rng) -> None:
    begun = time.process_time()  # the machine may be busy with others
    result = run(asked)
    seconds = time.process_time() - begun
    if result is None:
        return
    if is_limited:
        late = seconds - result.compile_seconds
        expect(late < 3, f"max_seconds=0.3 took {late:.1f} s")
    else:
        _judge(result, program, asked, dtype, rng)
    check_form(result, asked, program)


def _judge(result, program, asked, dtype, rng) -> None:
    """All that takes another run, or another opinion."""
    if rng.random() < 0.3:
        same_bits(result, run(asked), "made once more")
    if rng.random() < 0.3:
        resumed(result, asked, rng)
    finished = result.status in ("converged", "stalled")
    if asked["method"] != "auto" or asked["batch_size"] is not None:
        return
    judge = Judge(program)
    if not program.is_bounded:
        if result.status == "converged":
            check_minimum(judge, judge.flat(result.x), judge.flat(result.y))
        return
    check_record(result, judge, asked, dtype)
    if finished and program.is_exact and asked["constraint"] != "simplex":
        check_verdict(result, judge, asked, dtype)
    if program.is_exact:
        check_other(result, judge, program, asked, dtype, rng)


def check_form(result, asked, program) -> None:
    """Dtypes, shapes, finite numbers, a true history."""
    expect(result.status in STATUSES, f"status {result.status}")
    for name in ("x", "y"):
        leaves = [jax.tree.leaves(tree) for tree in (asked[name + "0"], getattr(result, name))]
        expect(len(leaves[0]) == len(leaves[1]), f"{name} is another tree")
        for before, after in zip(*leaves, strict=True):
            expect(type(before) is type(after), f"{name} is a {type(after).__name__}")
            same = np.dtype(str(before.dtype).removeprefix("torch.")).newbyteorder("=") == np.dtype(
                str(after.dtype).removeprefix("torch.")
            ).newbyteorder("=")
            expect(same, f"{name} has {after.dtype} for {before.dtype}")
            expect(tuple(before.shape) == tuple(after.shape), f"{name} has another shape")
    if result.status != "diverged":
        for name in ("x", "y"):
            leaves = jax.tree.leaves(as_numpy(getattr(result, name)))
            whole = all(np.isfinite(leaf).all() for leaf in leaves)
            expect(whole, f"{result.status} with {name} not finite")
    history = result.history
    if history.records:
        last = history.last()
        expect(last["step"] == result.steps, f"last record {last['step']} of {result.steps} steps")
        for name, count in result.counts.items():
            if name in last:
                expect(last[name] <= count, f"{name} is {last[name]} in the record, {count} in all")
                expect(bool((np.diff(history[name]) >= 0).all()), f"{name} falls in the history")
    expect(np.asarray(result.message.endswith((".", "less"))).all(), f"message {result.message!r}")
    box = asked["constraint"]
    x = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(as_numpy(result.x))])
    if isinstance(box, tuple):
        slack = 1e-6
        expect(
            bool((x >= box[0] - slack).all() and (x <= box[1] + slack).all()), "x leaves its box"
        )
    elif box == "nonnegative":
        expect(bool((x >= 0).all()), "x is negative")


def same_bits(one, other, how: str) -> None:
    if other is None:
        raise hunt.FoundError(f"refused when {how}")
    for name in ("status", "steps", "counts"):
        a, b = getattr(one, name), getattr(other, name)
        expect(a == b, f"{name} {a} is {b} when {how}")
    for name in ("x", "y", "state"):
        expect(bits(getattr(one, name)) == bits(getattr(other, name)), f"{name} differs when {how}")
    for name in set(one.history) - {"seconds"}:
        same = np.array_equal(one.history[name], other.history[name], equal_nan=True)
        expect(same, f"history {name} differs when {how}")


def resumed(result, asked, rng) -> None:
    """The same run, stopped at a record and resumed from its checkpoint."""
    stop = int(rng.integers(1, max(2, result.steps)))
    with tempfile.TemporaryDirectory() as folder:
        with_file = asked | {"checkpoint": Path(folder) / "run"}
        try:
            cut = untuned.minimize(**with_file, callback=lambda snapshot: snapshot.step >= stop)
            same_bits(result, untuned.minimize(**with_file), f"resumed from step {cut.steps}")
        except (ValueError, TypeError) as error:
            raise hunt.FoundError(f"resuming was refused: {hunt.first_line(str(error))}") from error


def check_minimum(judge: Judge, x: np.ndarray, y: np.ndarray) -> None:
    """y is a minimum of g, if only a local one."""
    with jax.enable_x64(True):
        _, slope, curvature = map(np.asarray, judge.g(x, y))
        first = np.asarray(judge.g(judge.x0, judge.y0)[1])
    least = np.linalg.eigvalsh(curvature).min()
    words = f"converged, g's slope {np.linalg.norm(slope):.3g}, least curvature {least:.3g}"
    expect(least > 0 and np.linalg.norm(slope) <= 0.01 * np.linalg.norm(first), words)


def check_record(result, judge: Judge, asked: dict, dtype: str) -> None:
    """The last record against what float64 says of the same point; `auto`'s belong to it."""
    if result.status == "diverged" or not result.history.records:
        return
    state, last = result.state, result.history.last()
    point = [judge.flat(getattr(state, name)) for name in ("x", "y", "v")]
    true, start = judge.at(*point), judge.at(judge.x0, judge.y0, np.zeros_like(judge.y0))
    # Of a constrained run the norm is that of a projected step.
    names = ("outer", "inner_grad_norm", *["hypergrad_norm"] * (asked["constraint"] is None))
    for name in names:
        share = 3e-2 if dtype == "float32" else 1e-4
        # What rounding leaves of terms as large as those at the start.
        size = max(abs(true[name]), 1e-2 * abs(start[name]), 1e-4)
        off = abs(last[name] - true[name])
        expect(off <= share * size, f"record {name} {last[name]:.5g}, float64 {true[name]:.5g}")


def check_verdict(result, judge: Judge, asked: dict, dtype: str) -> None:
    """A run that says it is done: y solves g, and SciPy finds no much better x from there."""
    x, y = judge.flat(result.x), judge.flat(result.y)
    value, _ = judge.phi(x)
    first, _ = judge.phi(judge.x0)
    with jax.enable_x64(True):
        own = float(judge.f(x, y)[0])
    bounds = {"nonnegative": (0, None)}.get(asked["constraint"], asked["constraint"])
    best = judge.better(x, None if bounds is None else [bounds] * len(x))
    if not np.isfinite([value, first, best]).all():
        return
    gain = max(first - best, 1e-3 * abs(first), 1e-9)
    share = {"converged": 0.03, "stalled": 0.1}[result.status] * (2 if dtype == "float32" else 1)
    if asked["tol"] is None:
        lost = value - best
        words = f"{result.status} at {value:.6g}, SciPy goes on to {best:.6g}, from {first:.6g}"
        expect(lost <= share * gain, words)
    # y may be as inexact as x can bear.
    near = max(share * gain, 5e-3 * abs(value))
    expect(abs(own - value) <= near, f"{result.status}: f {own:.6g}, f at y* {value:.6g}")


def check_other(result, judge, program, asked, dtype, rng) -> None:
    """The same program in float64 on the other library ends about as well."""
    other = "torch" if not isinstance(jax.tree.leaves(asked["x0"])[0], torch.Tensor) else "jax"
    options = {name: asked[name] for name in ("method", "constraint", "max_steps", "tol", "seed")}
    second = run(arguments(program, other, "float64", rng) | options)
    if second is None or {"diverged"} & {result.status, second.status}:
        return
    values = [judge.phi(judge.flat(each.x))[0] for each in (result, second)]
    first = judge.phi(judge.x0)[0]
    # Another local minimum is no error: only what SciPy can still gain from there is.
    gain = max(first - min(values), 1e-3 * abs(first), 1e-9)
    if not np.isfinite([*values, first]).all() or abs(values[0] - values[1]) <= 0.1 * gain:
        return
    if asked["constraint"] == "simplex" or asked["tol"] is not None:
        return
    bounds = {"nonnegative": (0, None)}.get(asked["constraint"], asked["constraint"])
    worse, name = max(zip(values, (result, second), strict=True), key=lambda pair: pair[0])
    x = judge.flat(name.x)
    best = judge.better(x, None if bounds is None else [bounds] * len(x))
    words = (
        f"{result.status} at {values[0]:.6g}, {other} float64 {second.status} at {values[1]:.6g}"
    )
    expect(worse - best <= 0.1 * gain, f"{words}, SciPy {best:.6g}")


if __name__ == "__main__":
    hunt.main(check, SLOWEST)
