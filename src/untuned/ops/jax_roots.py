"""What `untuned.solution` needs of JAX: small dense solves, and roots that are differentiable.

Vectors are one axis long and numbers are vectors of one entry; `jax.vmap` makes stacks of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from untuned.ops import Tree, cache, jax_compiling

PART = 2**17  # numbers that problems solved together hold, so that they stay near the processor
ROUNDING = 8  # times the spacing of numbers: by how much products with one matrix may differ

where, isfinite, maximum, solve = jnp.where, jnp.isfinite, jnp.maximum, jnp.linalg.solve
sort, zeros_like, join, stack = jnp.sort, jnp.zeros_like, jnp.concatenate, jnp.stack
broadcast_to, broadcast_shapes = jnp.broadcast_to, jnp.broadcast_shapes


@contextmanager
def explained() -> Iterator[None]:
    """Inside, one sentence says what is wrong where inner cannot be differentiated forward."""
    try:
        yield
    except (TypeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        if "custom_vjp" not in reason and "do not support JVP" not in reason:
            raise
        raise ValueError(
            f"argmin needs a derivative of inner that a rule in it does not have ({reason}); write "
            "inner without that rule, or give the rule by jax.custom_jvp."
        ) from error


def eye(size: int, like: Any) -> Any:
    return jnp.eye(size, dtype=like.dtype)


def diagonal(matrix: Any) -> Any:
    return jnp.diagonal(matrix, axis1=-2, axis2=-1)


def largest(array: Any) -> Any:
    return jnp.max(array, axis=-1, keepdims=True)


def smallest(array: Any) -> Any:
    return jnp.min(array, axis=-1, keepdims=True)


def cholesky(matrix: Any) -> Any:
    """The lower factor; NaN where the matrix is not positive definite."""
    return jnp.linalg.cholesky(matrix, symmetrize_input=False)


def cholesky_solve(lower: Any, b: Any) -> Any:
    return jax.scipy.linalg.cho_solve((lower, True), b)


def solver(matrix: Any) -> Callable:
    """The map from right sides to solutions of a system; NaN or infinite where it is singular."""
    factors = jax.scipy.linalg.lu_factor(matrix)
    return lambda b: jax.scipy.linalg.lu_solve(factors, b[..., None])[..., 0]


def take_in(leaf: Any, like: Any = None) -> Any:
    """A leaf as an array; floats in the dtype of `like`."""
    if isinstance(leaf, np.ndarray):
        leaf = leaf.astype(leaf.dtype.newbyteorder("="), copy=False)
        kept = jax.dtypes.canonicalize_dtype(leaf.dtype)  # of 32 bits where x and y0 have these
        if leaf.dtype.kind in "iu" and (leaf.astype(kept) != leaf).any():
            raise ValueError(
                f"an array of {leaf.dtype} holds {leaf.flat[np.argmax(leaf.astype(kept) != leaf)]},"
                f" which {kept} cannot hold; give x and y0 in float64, or smaller numbers."
            )
    array = jnp.asarray(leaf)
    is_float = like is not None and jnp.issubdtype(array.dtype, jnp.floating)
    return array.astype(like.dtype) if is_float else array


def is_known(*trees: Tree) -> bool:
    """Whether numbers are at hand, and not only their shapes."""
    return not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(trees))


def reads_known(function: Callable, y: Any) -> bool:
    """Whether all that a function of y reads besides y is known."""
    return is_known(jax.make_jaxpr(function)(y).consts)


def numbers(leaf: Any) -> np.ndarray:
    """A leaf whose numbers are known, in NumPy."""
    return np.asarray(leaf)


def while_loop(cond: Callable, body: Callable, carry: Tree) -> Tree:
    # Where numbers are at hand a loop in Python spares the compiler, which takes longer than a
    # small problem does.
    if not is_known(carry):
        return lax.while_loop(lambda carry: jnp.any(cond(carry)), body, carry)
    while bool(jnp.any(cond(carry))):
        carry = body(carry)
    return carry


class Function:
    """g of a vector y, with its derivatives."""

    def __init__(self, function: Callable):
        self.bare = function

    def function(self, _: None, y: Any) -> Any:
        """As a function of (x, y), where x is already in it."""
        return self.bare(y)

    def value_and_grad(self, y: Any) -> tuple[Any, Any]:
        value, grad = jax.value_and_grad(self.bare)(y)
        return value[None].astype(y.dtype), grad

    def grad(self, y: Any) -> Any:
        return jax.grad(self.bare)(y)

    def hessian(self, y: Any) -> Any:
        _, pull = jax.vjp(jax.grad(self.bare), y)
        return jax.vmap(lambda unit: pull(unit)[0])(eye(y.shape[0], y))

    def has_hessian(self, y: Any, matrix: Any, asked: Any) -> Any:
        """Which of the problems that ask have this Hessian at y, as a random product tells."""

        def look(_: Any) -> Any:
            probe = jnp.asarray(np.random.default_rng(0).standard_normal(y.shape[0]), y.dtype)
            apart = jax.vjp(jax.grad(self.bare), y)[1](probe)[0] - matrix @ probe
            size = abs(matrix) @ abs(probe)
            return asked & (abs(apart) <= ROUNDING * jnp.finfo(y.dtype).eps * size).all()

        return lax.cond(asked[0], look, lambda _: asked, None)


@explained()
def operations(function: Callable, y: Any) -> int:
    """What a product with the Hessian of a function of y takes, roughly."""
    _, product = jax.linearize(jax.grad(function), y)
    return jax_compiling.counted(jax.make_jaxpr(product)(y).jaxpr)


@explained()
def compiled(function: Callable, given: Tree, y: Any) -> tuple[Callable, Callable]:
    """Value with gradient, and Hessian, of function(given, y) as functions of y.

    Compiled as two wholes, which takes a second at most; operation by operation it is many. A call
    with the same formula on other numbers finds them compiled.
    """
    at = lambda given: Function(partial(function, given))
    return (
        _compiled(lambda given, y: at(given).value_and_grad(y), given, y),
        _compiled(lambda given, y: at(given).hessian(y), given, y),
    )


def _compiled(function: Callable, given: Tree, y: Any) -> Callable:
    # What the function reads becomes an argument, so that its numbers are not in its text.
    closed = jax.make_jaxpr(function)(given, y)
    arrays = [*closed.consts, *jax.tree.leaves(given)]
    count = len(closed.consts)
    run = lambda arrays, y: jax.core.eval_jaxpr(closed.jaxpr, arrays[:count], *arrays[count:], y)
    lowered = jax.jit(run).lower(arrays, y)
    ready = cache.kept_for_text(lowered.as_text(), arrays, lowered.compile)

    def call(y: Any) -> Any:
        found = ready(arrays, y)
        return found if len(found) > 1 else found[0]

    return call


def fixed(tree: Tree) -> Tree:
    """The tree as a constant to derivatives."""
    return jax.tree.map(lax.stop_gradient, tree)


def nothing(tree: Tree) -> Any:
    """Zero, but NaN in the derivative where that of what it is added to is.

    A g that does not depend on an array would else have a derivative of zero in it, solution or
    not.
    """
    leaves = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return sum((0 * leaf).sum() for leaf in leaves)


@explained()
def root(optimality: Callable, y: Any, solve_linear: Callable) -> Any:
    """y, where optimality(y) = 0, with the derivatives that follow from that.

    In all that `optimality` depends on, in both modes and any number of times.
    """
    return lax.custom_root(optimality, y, lambda _, y: y, solve_linear)


def solve_by_matrix(product: Callable, b: Any) -> Any:
    """The solution of a system of few variables with a positive definite matrix, given by its
    product; NaN where it is not."""

    def solve(b: Any) -> Any:
        matrix = jax.vmap(product, out_axes=-1)(eye(b.shape[0], b))
        return cholesky_solve(cholesky(matrix), b)

    return in_parts(solve, b)


def solve_by_root(lower: Any) -> Callable:
    """The same where the lower factor of the matrix is known."""
    return lambda _, b: cholesky_solve(lower, b)


def solve_symmetric(solve: Callable) -> Callable:
    """`solve(product, b)` for a symmetric product, differentiable whatever it is made of."""
    return lambda product, b: lax.custom_linear_solve(product, b, solve, symmetric=True)


@explained()
def in_parts(function: Callable, y: Any) -> Tree:
    """function(y); if `jax.vmap` makes a stack of it, a part of it after the other.

    Arrays of all problems at once would go to memory and back with every operation. To
    derivatives the result is a constant, whatever the function reads.
    """
    # All that the function reads becomes an argument, since a rule for stacks sees arguments alone.
    closed, shape = jax.make_jaxpr(function, return_shape=True)(y)
    if is_known(y, closed.consts):
        return function(y)
    structure = jax.tree.structure(shape)

    @jax.custom_batching.custom_vmap
    def run(*arguments: Any) -> list[Any]:
        *consts, y = arguments
        return jax.core.eval_jaxpr(closed.jaxpr, consts, y)

    @run.def_vmap
    def run_stack(count: int, stacked: list[bool], *arguments: Any) -> tuple[list[Any], list[bool]]:
        moving = [array for array, has in zip(arguments, stacked, strict=True) if has]
        entries = sum(array.size for array in moving) // max(count, 1) + y.size**2
        parts = max(1, -(-count // max(1, PART // entries)))
        length = -(-count // parts)
        # The last part is filled up with problems that are solved already.
        rows = jnp.minimum(jnp.arange(parts * length), count - 1).reshape(parts, length)

        def solve(rows: Any) -> list[Any]:
            some = iter([array[rows] for array in moving])
            every = [
                next(some) if has else array for array, has in zip(arguments, stacked, strict=True)
            ]
            axes = [0 if has else None for has in stacked]
            one = lambda *arguments: jax.core.eval_jaxpr(
                closed.jaxpr, arguments[:-1], arguments[-1]
            )
            return jax.vmap(one, in_axes=axes)(*every)

        found = lax.map(solve, rows) if parts > 1 else [part[None] for part in solve(rows[0])]
        joined = [part.reshape(parts * length, *part.shape[2:])[:count] for part in found]
        return joined, [True] * len(joined)

    return jax.tree.unflatten(structure, run(*fixed((*closed.consts, y))))


def active_solution(
    search: Callable, solve: Callable, tell: Callable, program: Any, marks: Callable
) -> Any:
    """`solve(program, held)`, differentiable in the program, with what `search` says is held."""
    held, code = jax.jit(search)(fixed(program))
    if is_known(code):
        tell(code)
    return solve(program, held) * marks(code)


@jax.custom_jvp
def marked(y: Any, mark: Any) -> Any:
    """y, with a derivative that is `mark` times its own: one, or NaN where it has none."""
    return y


@marked.defjvp
def _marked_jvp(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
    y, mark = primals
    return marked(y, mark), lax.stop_gradient(mark) * tangents[0]


def tell_later(tell: Callable, codes: Any) -> None:
    """`tell(codes)` when the compiled function runs."""
    jax.debug.callback(tell, codes)
