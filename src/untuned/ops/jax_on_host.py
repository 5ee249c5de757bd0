"""The operations of :class:`untuned.ops.Ops` on JAX with loops on the host: only f, g and their
derivatives are compiled, or evaluated in NumPy (traced/in_numpy.py).

A method of loops inside loops is one large program to a compiler, which takes seconds where a run
takes tenths of one; its derivatives are a handful of small ones. And a loop in Python can look at
the clock. The price is some thirty microseconds for each evaluation, so this is for evaluations
that take longer, or for runs of few of them.

Variables are NumPy arrays, rows arrays of JAX. Products with second derivatives are forward over
reverse, which saves nothing from one product for the next: saved arrays would be copies of the
rows, and reading those takes longer than to compute again.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import numpy as np
import optree

from untuned.ops import Scalar, Tree, eager, jax_arrays, jax_compiling
from untuned.ops import jax as base
from untuned.ops import numpy as host
from untuned.ops.cache import kept_for
from untuned.ops.traced.in_numpy import FIRST_ORDER, Sheet, derivative
from untuned.ops.traced.listing import Operation
from untuned.util import threads

MANY = 2**23  # entries of results, from which on a program that fuses them is worth compiling
operations = jax_compiling.operations
LARGE = 2 * threads.PER_THREAD  # entries of a factor that more threads than one should read


class OnHost:
    """The operations, with the programs that were compiled for a run."""

    name = "jax"
    compiles = False

    def __init__(self, effort: str, in_numpy: bool = False):
        self._effort = effort
        self.in_numpy = in_numpy  # what can be evaluated there is not compiled
        self._programs: dict[Hashable, Callable] = {}
        self._sheets: dict[Hashable, Sheet] = {}
        self._prices: dict[Hashable, float] = {}
        self._compiling = 0.0

    def __getattr__(self, name: str) -> Any:
        # Whatever is not said here is done in NumPy, and found at once the next time.
        found = self.__dict__[name] = getattr(host, name)
        return found

    def compile_seconds(self) -> float:
        return self._compiling

    # Derivatives

    def value(self, fn: Any, x: Tree, y: Tree, /) -> Scalar:
        return float(self._call("value", fn, x, y))

    def value_and_grads(self, fn: Any, x: Tree, y: Tree, /) -> tuple[Scalar, Tree, Tree]:
        result, (in_x, in_y) = self._call("value_and_grads", fn, x, y)
        return float(result), self._out(in_x), self._out(in_y)

    def grad_y(self, fn: Any, x: Tree, y: Tree, /) -> Tree:
        return self._out(self._call("grad_y", fn, x, y))

    def value_and_grad_y(self, fn: Any, x: Tree, y: Tree, /) -> tuple[Scalar, Tree]:
        result, in_y = self._call("value_and_grad_y", fn, x, y)
        return float(result), self._out(in_y)

    def products(self, fn: Any, x: Tree, y: Tree, /) -> Callable:
        return lambda v, wrt: self._out(self._call("along " + wrt, fn, x, y, v))

    def linearize(self, fn: Any, x: Tree, y: Tree, /) -> tuple[Tree, Callable]:
        return self.grad_y(fn, x, y), self.products(fn, x, y)

    def _out(self, tree: Tree) -> Tree:
        return _in_numpy(tree)

    def hessian(self, fn: Any, x: Tree, y: Tree, /) -> Any:
        # On many rows the columns take long: a few at a time, and between them a look at the clock.
        count, blocks = host.size(y), _blocks(fn, y)
        call = lambda block: np.asarray(self._call("columns", fn, x, y, block))
        return np.concatenate(eager.columns(call, blocks))[:count]

    def hessian_price(self, fn: Any, x: Tree, y: Tree, /) -> float:
        function, shapes = self._key(fn)
        key = ("price", function, shapes)
        if key not in self._prices:
            self._prices[key] = self._hessian_price(fn, x, y)
        return self._prices[key]

    def _hessian_price(self, fn: Any, x: Tree, y: Tree) -> float:
        if not isinstance(self._get("along y", fn, x, y, y), partial):
            return base.hessian_price(fn, x, y)
        return self._sheets[self._key(fn)].price(host.size(y), True)

    def _call(self, kind: str, fn: Any, *variables: Tree) -> Any:
        return self._get(kind, fn, *variables)(*variables, *_rows(fn))

    def _get(self, kind: str, fn: Any, *variables: Tree) -> Callable:
        """The program for such variables and rows."""
        function, shapes = self._key(fn)
        key = (kind, function, shapes)
        program = self._programs.get(key)
        if program is None:
            sheet = None
            if self.in_numpy:
                sheet = self._sheets.setdefault((function, shapes), Sheet())
            program = self._program(kind, function, (*variables, *_rows(fn)), sheet)
            self._programs[key] = program
        return program

    def _key(self, fn: Any) -> tuple[Callable, tuple]:
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(_rows(fn)))
        return getattr(fn, "function", fn), shapes

    def _program(
        self, kind: str, function: Callable, arguments: tuple, sheet: Sheet | None
    ) -> Callable:
        start = time.perf_counter()
        try:
            with _no_collection():
                fits = sheet is not None and sheet.add(kind, function, arguments, _fits_numpy)
            if sheet is not None and fits:
                return partial(sheet.evaluate, kind)
            return self._compiled(kind, function, arguments)
        finally:
            self._compiling += time.perf_counter() - start

    def _compiled(
        self, kind: str, function: Callable, arguments: tuple, forward: bool = True
    ) -> Callable:
        make = lambda: jax.jit(
            derivative(kind, function, forward), compiler_options=self._options
        )  # fmt: skip
        program = kept_for(function, (kind, self._effort, forward), make)
        try:
            lowered = program.lower(*arguments)
        except (TypeError, ValueError) as error:
            if kind in FIRST_ORDER:
                raise
            if forward:
                return self._compiled(kind, function, arguments, False)
            raise ValueError(
                "JAX cannot differentiate a function twice "
                f"({str(error).splitlines()[0]}); write it without such a rule, or take a method "
                'that needs no second derivatives, such as method="f2sa".'
            ) from error
        with jax_compiling.used():
            lowered.compile()  # the call that follows finds it
        return program

    @property
    def _options(self) -> dict[str, Any]:
        return jax_compiling.of_effort(self._effort)

    def on_jax(self, function: Callable | None, /) -> Callable | None:
        """A function of x alone, such as a projection, for variables in NumPy."""
        if function is None:
            return None
        jitted = jax.jit(lambda x: function(x), compiler_options=self._options)
        return lambda x: _in_numpy(jitted(x))

    # The border to the host

    @contextmanager
    def precision(self, tree: Tree, /) -> Iterator[None]:
        with base.precision(tree), host.precision(tree):
            yield

    def take(self, tree: Tree, indices: Any, /) -> Tree:
        # Not by JAX's own, which would compile for it.
        return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)[indices]), tree)

    def head(self, data: Tree, count: int | None, /) -> Tree:
        return base.head(data, count)

    def to_numpy(self, leaf: Any, /) -> np.ndarray:
        return base.to_numpy(leaf)

    def to_host(self, tree: Tree, /) -> list[np.ndarray]:
        return [self.to_numpy(leaf) for leaf in host.flatten(tree)[0]]

    def pieces(self, tree: Tree, /) -> list[tuple[int, int, np.ndarray]]:
        return [(number, 0, array) for number, array in enumerate(self.to_host(tree))]

    def as_given(self, tree: Tree, /) -> Tree:
        return host.tree_map(
            lambda leaf: base.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, tree
        )


class OnDevices(OnHost):
    """The same with variables that stay arrays of JAX, on other devices or spread over several."""

    _HOST = (
        "scalar", "counter", "floor", "maximum", "hypot", "isfinite", "logical_not", "cast",
        "where", "cond", "while_loop", "scan", "was_cut", "number", "compile",
    )  # fmt: skip

    def __init__(self, effort: str):
        super().__init__(effort)
        for name in self._HOST:
            setattr(self, name, getattr(eager, name))

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__[name] = getattr(base, name)
        return found

    def dot(self, a: Tree, b: Tree, /) -> Scalar:
        return float(base.dot(a, b))

    def norm(self, tree: Tree, /) -> Scalar:
        return float(base.norm(tree))

    def equal(self, a: Tree, b: Tree, /) -> Scalar:
        return bool(base.equal(a, b))

    def hessian(self, fn: Any, x: Tree, y: Tree, /) -> Any:
        return base.hessian(fn, x, y)

    def _hessian_price(self, fn: Any, x: Tree, y: Tree) -> float:
        return base.hessian_price(fn, x, y)

    def _out(self, tree: Tree) -> Tree:
        return tree


def fits(*trees: Tree) -> bool:
    """Whether such arrays can be handed back and forth: on one CPU, in containers both sides know.

    JAX knows more of them than optree, by which NumPy's side takes trees apart.
    """
    if jax.default_backend() != "cpu" or jax.process_count() > 1:
        return False
    for tree in trees:
        leaves = jax.tree.leaves(tree)
        if not all(ours is theirs for ours, theirs in zip(leaves, _plain(tree), strict=False)):
            return False
        if len(leaves) != len(_plain(tree)) or jax_arrays.mesh_of(tree) is not None:
            return False
    return all(
        len(leaf.devices()) == 1 and next(iter(leaf.devices())).platform == "cpu"
        for leaf in jax.tree.leaves(trees)
    )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Inside, Python looks for no garbage: a trace makes many objects, which stay, and among all
    that JAX has imported the search takes longer than the trace."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _plain(tree: Tree) -> list[Any]:
    return optree.tree_leaves(tree)


def _rows(fn: Any) -> tuple[Tree, ...]:
    return (fn.rows,) if hasattr(fn, "rows") else ()


def _blocks(fn: Any, y: Tree) -> np.ndarray:
    """The unit vectors, as many together as columns of a Hessian are made at a time."""
    count = host.size(y)
    parts = -(-count // base.columns_at_once(y, getattr(fn, "rows", ())))
    at_once = -(-count // parts)
    return np.eye(parts * at_once, count, dtype=host.ravel(y).dtype).reshape(parts, at_once, count)


def _fits_numpy(operations: list[Operation]) -> bool:
    """Whether a program would be no quicker than its operations one by one."""
    if sum(operation.entries for operation in operations) > MANY:
        return False
    return threads.allowed() == 1 or all(operation.factor < LARGE for operation in operations)


def _in_numpy(tree: Tree) -> Tree:
    return np.asarray(tree) if isinstance(tree, jax.Array) else host.tree_map(np.asarray, tree)
