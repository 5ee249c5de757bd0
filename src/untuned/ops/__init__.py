"""The operations that methods need of an array library.

All packages above this one use the names of :class:`Ops`. ``jax.py`` and ``torch.py`` implement
them, and so does ``numpy.py`` for functions that bring their own derivatives. A tree is what JAX
calls a pytree: an array, or a dict, tuple or list of trees. Scalars of a run (norms, accumulators)
are 0-d arrays on JAX and Python floats elsewhere.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

Tree = Any
Scalar = Any


class UntraceableError(Exception):
    """A user's function does something that its library cannot trace; reads `<function> <this>`."""


class Ops(Protocol):
    """The operations of an array library; a module with these names is one."""

    name: str
    compiles: bool  # whether `compile` does something, and so should be done once

    # Trees
    def flatten(self, tree: Tree, /) -> tuple[list[Any], Any]: ...
    def unflatten(self, structure: Any, leaves: list[Any], /) -> Tree: ...
    def paths(self, tree: Tree, /) -> list[str]:
        """A readable name for each leaf, in the order of `flatten`."""

    def tree_map(self, fn: Callable[..., Any], tree: Tree, /, *rest: Tree) -> Tree: ...
    def zeros_like(self, tree: Tree, /) -> Tree: ...
    def axpy(self, a: Scalar, x: Tree, y: Tree, /) -> Tree:
        """y + a x."""

    def sub(self, a: Tree, b: Tree, /) -> Tree: ...
    def size(self, tree: Tree, /) -> int:
        """The number of entries."""

    def dot(self, a: Tree, b: Tree, /) -> Scalar: ...
    def norm(self, tree: Tree, /) -> Scalar:
        """Euclidean norm over all entries of all leaves."""

    def ravel(self, tree: Tree, /) -> Any:
        """All entries as one vector."""

    def unravel(self, vector: Any, like: Tree, /) -> Tree:
        """The tree with the structure and shapes of `like` that `ravel` turns into `vector`."""

    def stack(self, tree: Tree, count: int, /) -> Tree:
        """`count` copies of every leaf along a new leading axis."""

    def push(self, stack: Tree, tree: Tree, /) -> Tree:
        """The stack without its first entry and with `tree` as its last."""

    def equal(self, a: Tree, b: Tree, /) -> Scalar:
        """Whether every entry is the same number."""

    def in_order(self, tree: Tree, /) -> Tree:
        """The tree with every array row by row in memory, as a file gives it back: sums are made
        in the order of the memory, so another order would be other bits."""

    def take(self, tree: Tree, indices: Any, /) -> Tree:
        """The rows `indices` of every leaf."""

    # A numbered list of trees; replacing one leaves earlier copies of the list as they were
    def repeat(self, tree: Tree, count: int, /) -> Any:
        """`count` times the same tree."""

    def swap_row(self, rows: Any, k: Scalar, tree: Tree, /) -> tuple[Tree, Any]:
        """The k-th tree, and the rows with another one in its place."""

    # Scalars
    def scalar(self, value: float, like: Tree, /) -> Scalar:
        """`value` as a scalar of a run whose variables are like `like`."""

    def array(self, value: Scalar, like: Tree, /) -> Any:
        """A scalar of a run as a 0-d array, which can be stacked; or a vector of NumPy."""

    def number(self, array: Any, /) -> Scalar:
        """A 0-d array as a scalar of a run."""

    def counter(self, value: int, /) -> Scalar:
        """A whole number that a loop can carry."""

    def floor(self, a: Scalar, /) -> Scalar:
        """The whole number below a nonnegative number, as a counter."""

    def hypot(self, a: Scalar, b: Scalar, /) -> Scalar: ...
    def maximum(self, a: Scalar, b: Scalar, /) -> Scalar: ...
    def isfinite(self, a: Scalar, /) -> Scalar: ...
    def logical_not(self, a: Scalar, /) -> Scalar: ...
    def cast(self, tree: Tree, like: Tree, /) -> Tree:
        """`tree` with the dtypes of `like`, where a loop needs them fixed."""

    def epsilon(self, like: Tree, /) -> float:
        """The spacing of floating-point numbers at 1, in the dtype of `like`."""

    # Small dense matrices
    def matrix(self, product: Callable, size: int, like: Tree, /) -> Any:
        """The matrix of a linear map of vectors, from its products with the unit vectors."""

    def eigh(self, matrix: Any, /) -> tuple[Any, Any]:
        """Eigenvalues and eigenvectors of a symmetric matrix."""

    def inverse(self, matrix: Any, /) -> Any:
        """The inverse of a symmetric matrix, or of each of a stack, by Cholesky's factors; not
        finite where one of them is not positive definite."""

    # Projections
    def clip(self, array: Any, low: Any, high: Any, /) -> Any: ...
    def simplex(self, tree: Tree, /) -> Tree:
        """For each leaf the nearest point whose entries are nonnegative and sum to one."""

    # Control flow
    def where(self, condition: Scalar, a: Tree, b: Tree, /) -> Tree:
        """Tree `a` if the scalar condition holds, else `b`."""

    def cond(self, condition: Scalar, if_true: Callable, if_false: Callable, /) -> Tree:
        """`if_true()` or `if_false()`, of which only one is evaluated."""

    def while_loop(self, cond: Callable, body: Callable, carry: Tree, /) -> Tree:
        """`body` as long as `cond`; in Python also no longer than `util.watch` lets it."""

    def was_cut(self) -> Scalar:
        """Whether a loop has ended because of the watch, so that what follows is not to be used."""

    def scan(
        self, fn: Callable, carry: Tree, xs: Any, length: int, reverse: bool, /
    ) -> tuple[Tree, Any]:
        """`carry, out = fn(carry, x)` over xs (None: `length` times); the carry and all outs.

        In reverse the last x comes first; outs keep the order of xs.
        """

    # Derivatives
    def value(self, fn: Callable, x: Tree, y: Tree, /) -> Scalar: ...
    def value_and_grads(self, fn: Callable, x: Tree, y: Tree, /) -> tuple[Scalar, Tree, Tree]:
        """fn, its gradient in x, its gradient in y."""

    def grad_y(self, fn: Callable, x: Tree, y: Tree, /) -> Tree: ...
    def value_and_grad_y(self, fn: Callable, x: Tree, y: Tree, /) -> tuple[Scalar, Tree]: ...
    def linearize(self, fn: Callable, x: Tree, y: Tree, /) -> tuple[Tree, Callable]:
        """The y-gradient of fn, and `pull(v, wrt)` for products of its second derivatives with v.

        `wrt` is "x" (cross product), "y" (Hessian product) or "xy" (both from one pass).
        """

    def products(self, fn: Callable, x: Tree, y: Tree, /) -> Callable:
        """`pull` of `linearize` alone, where no gradient is needed."""

    def hessian(self, fn: Callable, x: Tree, y: Tree, /) -> Any:
        """The second derivatives of fn in y as a matrix, in the order of `ravel`."""

    def hessian_price(self, fn: Callable, x: Tree, y: Tree, /) -> float:
        """What another `hessian` costs, in products, by counting operations: as many as y has
        entries where it makes one product after another."""

    # The border to the host
    def precision(self, tree: Tree, /) -> AbstractContextManager:
        """Inside, the library computes in the dtype of `tree`."""

    def asarray(self, leaf: Any, like: Any = None, /) -> Any:
        """A leaf as an array of this library; floats take the dtype and device of `like`."""

    def without_copy(self, array: np.ndarray, like: Any, /) -> Any:
        """A NumPy array that nobody will change as one of this library, if possible not copied."""

    def dtype_name(self, leaf: Any, /) -> str: ...
    def device_name(self, leaf: Any, /) -> str: ...
    def to_numpy(self, leaf: Any, /) -> np.ndarray: ...
    def sync(self, tree: Tree, /) -> None:
        """Wait until `tree` is computed, so that a clock may be read."""

    def head(self, data: Tree, count: int | None, /) -> Tree:
        """The first rows of data (None: all), or a stand-in of their shape for `output_of`."""

    def output_of(self, fn: Callable, /, *args: Tree) -> tuple[tuple[int, ...], str]:
        """Shape and dtype of what fn gives, without compiling anything; or UntraceableError."""

    def compile(self, fn: Callable, /, *args: Any, effort: str = "full") -> Callable:
        """`fn` made ready for arguments of these shapes and dtypes.

        `effort` says how much time to spend on making it quick: "full", "half" or "least".
        """

    def compile_seconds(self) -> float:
        """Seconds that went to compiling inside of calls of other functions than `compile`."""

    # Runs over several processes; from `like`, the variables, it is known whether this is one
    def max_over_processes(self, number: float, like: Tree, /) -> float:
        """The largest of the processes' numbers, so that all decide alike."""

    def sum_over_processes(self, number: int, like: Tree, /) -> int:
        """The sum of the processes' numbers, modulo 2**64."""

    def is_main_process(self, like: Tree, /) -> bool:
        """Whether this process is the one that writes files."""

    def same_on_all(self, text: str, like: Tree, /) -> bool:
        """Whether every process gave the same text."""

    def to_host(self, tree: Tree, /) -> list[np.ndarray]:
        """Every leaf as a NumPy array, whole; all processes must ask for it together."""

    def from_host(self, arrays: list[np.ndarray], like: Tree, /) -> Tree:
        """The tree like `like` that `to_host` turns into `arrays`."""

    def pieces(self, tree: Tree, /) -> list[tuple[int, int, np.ndarray]]:
        """What this process holds: number of the leaf, number of the first row, rows."""

    def as_given(self, tree: Tree, /) -> Tree:
        """A tree of a run as the user's functions see it."""

    def place_like(self, tree: Tree, data: Tree, /) -> Tree:
        """The tree on the devices that hold the data."""


class ClosedForm(Protocol):
    """A function of (x, y) with its derivatives, in NumPy."""

    def __call__(self, x: Tree, y: Tree, /) -> float: ...
    def value_and_grads(self, x: Tree, y: Tree, /) -> tuple[float, Tree, Tree]: ...
    def grad_y(self, x: Tree, y: Tree, /) -> Tree:
        """Only g needs this and what follows."""

    def products(self, x: Tree, y: Tree, /) -> Callable:
        """`pull(v, wrt)` as in `Ops.linearize`.

        g may also have `hessian_blocks(y)`, where it falls apart into functions of some
        consecutive entries of y each: their number, the entries of each, and the share of the rows
        that `hessian(x, y)` looks at, which is the stack of their Hessians. Where these are about
        alike, one may stand for all.
        """


def get(library: str) -> Ops:
    """The operations of "jax", "torch" or "numpy", imported only now."""
    if library == "numpy":
        from untuned.ops import numpy as module_numpy

        return module_numpy
    # A module is an instance of the protocol; imported here so that `import untuned` stays light.
    if library == "torch":
        from untuned.ops import torch as module_torch

        return module_torch
    from untuned.ops import jax as module_jax

    return module_jax


def roots(library: str) -> Any:
    """What `untuned.solution` needs of "jax" or "torch", imported only now."""
    if library == "torch":
        from untuned.ops import torch_roots

        return torch_roots
    from untuned.ops import jax_roots

    return jax_roots


def over(group: Any) -> Any:
    """The operations of torch over the processes of a group of torch.distributed."""
    from untuned.ops import torch_group as module_group

    return module_group.over(group)


def leaves_of(tree: Tree) -> Iterator[Any]:
    """The leaves of plain containers, before it is known which library will read them."""
    if isinstance(tree, dict):
        for value in tree.values():
            yield from leaves_of(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from leaves_of(value)
    elif tree is not None:
        yield tree


def library_of(leaf: Any) -> str:
    """The library a leaf belongs to: "torch", "jax", or "numpy" for all that JAX can take in."""
    # Looked up in sys.modules: a leaf of a library exists only if that library is loaded.
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(leaf, torch.Tensor):
        return "torch"
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(leaf, jax.Array):
        return "jax"
    return "numpy"
