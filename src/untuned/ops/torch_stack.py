"""Stacks of small problems on torch: dense solves, loops, functions with their derivatives.

Everything here takes stacks of problems: vectors are the last axis, numbers are vectors of one
entry, and what comes before counts problems. A single one has nothing before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import numpy as np
import optree
import torch

from untuned.ops import Tree
from untuned.ops.torch import asarray, gradients

PART = 2**20  # numbers that problems solved together hold, so that they stay near the processor
ROUNDING = 8  # times the spacing of numbers: by how much products with one matrix may differ


def maximum(a: Any, b: Any) -> Any:
    return torch.maximum(a, b) if isinstance(b, torch.Tensor) else a.clamp(min=b)


def sort(array: Any) -> Any:
    return torch.sort(array, -1).values


def eye(size: int, like: Any) -> Any:
    return torch.eye(size, dtype=like.dtype, device=like.device)


def diagonal(matrix: Any) -> Any:
    return torch.diagonal(matrix, dim1=-2, dim2=-1)


def largest(array: Any) -> Any:
    return array.amax(-1, keepdim=True)


def smallest(array: Any) -> Any:
    return array.amin(-1, keepdim=True)


def cholesky(matrix: Any) -> Any:
    """The lower factor; NaN where the matrix is not positive definite."""
    lower, failed = torch.linalg.cholesky_ex(matrix)
    return torch.where((failed == 0)[..., None, None], lower, torch.nan) if failed.any() else lower


def cholesky_solve(lower: Any, b: Any) -> Any:
    return torch.cholesky_solve(b[..., None], lower)[..., 0]


def solve(matrix: Any, b: Any) -> Any:
    """The solution of a stack of systems; NaN where a matrix is singular."""
    found, failed = torch.linalg.solve_ex(matrix, b)
    return torch.where((failed == 0)[..., None, None], found, torch.nan)


def solver(matrix: Any) -> Callable:
    """The map from right sides to solutions of a stack of systems; NaN or infinite where one is
    singular."""
    factors, pivots, _ = torch.linalg.lu_factor_ex(matrix)
    return lambda b: torch.linalg.lu_solve(factors, pivots, b[..., None])[..., 0]


def take_in(leaf: Any, like: Any = None) -> Any:
    """A leaf as a tensor; floats in the dtype of `like`."""
    tensor = leaf if isinstance(leaf, torch.Tensor) else asarray(leaf)
    is_float = like is not None and tensor.is_floating_point()
    return tensor.to(like.device, like.dtype) if is_float else tensor


def is_known(*trees: Tree) -> bool:
    """Whether numbers are at hand, and not only their shapes, as inside `torch.func.vmap`."""
    try:
        leaves: list[torch.Tensor] = optree.tree_leaves(cast(Tree, trees))
        return all(leaf.sum().item() is not None for leaf in leaves)
    except RuntimeError:
        return False


def numbers(leaf: Any) -> np.ndarray:
    """A leaf whose numbers are known, in NumPy."""
    try:
        return leaf.detach().cpu().numpy()
    except RuntimeError:  # inside `torch.func.grad` a tensor has numbers but no memory
        return np.array(leaf.tolist())


def reads_more(function: Callable, x: Tree, y: Tree, *data: Tree) -> bool:
    """Whether a function depends on a tensor with a gradient besides its arguments."""
    if not torch.is_grad_enabled():
        return False
    given: Tree = (x, y, *data)
    fixed = optree.tree_map(lambda leaf: leaf.detach(), given)
    return bool(function(*fixed).requires_grad)


def while_loop(cond: Callable, body: Callable, carry: Tree) -> Tree:
    """The loop for every problem of a stack until its own end."""
    going = cond(carry)
    while going.any():
        following = body(carry)
        if not going.all():
            following = optree.tree_map(
                lambda new, old, going=going: torch.where(_beside(going, new), new, old),
                following,
                carry,
            )
        carry, going = following, cond(following)
    return carry


def _beside(going: torch.Tensor, array: torch.Tensor) -> torch.Tensor:
    """One truth for each problem, against an array of any number of axes for each."""
    return going.reshape(*going.shape, *[1] * (array.ndim - going.ndim))


class Stack(NamedTuple):
    """A function of (arrays, y) with one number, and which arrays are stacked, level by level.

    Stacks of stacks have several levels, the outermost first; y is stacked in each.
    """

    function: Callable
    levels: tuple[tuple[bool, ...], ...] = ()

    def over(self, function: Callable) -> Callable:
        """A function of (arrays, y, ...) of one problem as one of all; what follows y is stacked
        as y is."""
        for level in reversed(self.levels):
            dims = tuple(0 if stacked else None for stacked in level)
            function = _mapped(function, dims)
        return function

    def grad(self, arrays: tuple, y: Any) -> Any:
        """The gradient in y of one problem."""
        return torch.func.grad(self.function, argnums=1)(arrays, y)

    def product(self, arrays: tuple, y: Any, v: Any) -> Any:
        """The Hessian of one problem times v."""
        pull = pullback(lambda y: self.grad(arrays, y), y)
        return pull(v)[0]

    def each(self, arrays: tuple, y: Any) -> Iterator[tuple[tuple, Any]]:
        """The arrays and y of one problem after the other."""
        if not self.levels:
            yield arrays, y
            return
        level, *rest = self.levels
        below = self._replace(levels=tuple(rest))
        for k in range(y.shape[0]):
            own = (array[k] if has else array for array, has in zip(arrays, level, strict=True))
            yield from below.each(tuple(own), y[k])

    def in_parts(self, compute: Callable, arrays: tuple, *stacked: Any) -> Any:
        """compute(arrays, *stacked) of all problems, a part after the other.

        Arrays of all at once would go to memory and back with every operation. What `compute`
        gives, a tensor or a tuple of them, is stacked as y, the first of `stacked`, is.
        """
        if not self.levels:
            return compute(arrays, *stacked)
        y, level = stacked[0], self.levels[0]
        count, size = y.shape[0], y.shape[-1]
        own = [array.numel() for array, has in zip(arrays, level, strict=True) if has]
        entries = max(1, (sum(own) + y.numel() * size) // max(count, 1))
        at_once = max(1, PART // entries)
        if at_once >= count:
            return compute(arrays, *stacked)
        found = []
        for start in range(0, count, at_once):
            part = slice(start, start + at_once)
            some = (array[part] if has else array for array, has in zip(arrays, level, strict=True))
            found.append(compute(tuple(some), *(array[part] for array in stacked)))
        if isinstance(found[0], torch.Tensor):
            return torch.cat(found)
        return tuple(torch.cat(parts) for parts in zip(*found, strict=True))


def _mapped(function: Callable, dims: tuple) -> Callable:
    # Where gradients are off, torch's second derivatives of linear solves under vmap are wrong.
    @torch.enable_grad()
    def mapped(arrays: tuple, *stacked: Any) -> Any:
        try:
            return torch.func.vmap(function, in_dims=(dims, *[0] * len(stacked)))(arrays, *stacked)
        except RuntimeError as error:
            if "INTERNAL ASSERT" not in str(error):
                raise
            reason = str(error).partition(", please report")[0][:200]
            raise RuntimeError(
                "torch.func.vmap cannot take derivatives of an operation in inner, such as "
                f"torch.linalg.lu_factor ({reason}); write it by another, such as "
                "torch.linalg.solve, or call argmin within fewer vmaps."
            ) from error

    return mapped


class Function:
    """g of a stack of vectors y, with its derivatives."""

    def __init__(self, stack: Stack, arrays: tuple):
        self.stack, self.arrays = stack, arrays
        self.all = stack.over(stack.function)
        self.last: tuple[Any, ...] = (None,)

    def value_and_grad(self, y: Any) -> tuple[Any, Any]:
        at = y.detach().requires_grad_()
        with torch.enable_grad():
            value = self.all(self.arrays, at)
            # Problems know nothing of each other, so the sum's gradient has that of each.
            (grad,) = gradients([value.sum()], [at], create_graph=True)
        self.last = y, at, grad
        return value.detach()[..., None].to(y.dtype), grad.detach()

    def hessian(self, y: Any) -> Any:
        return self.stack.over(jacobian(self.stack.grad))(self.arrays, y).detach()

    def has_hessian(self, y: Any, matrix: Any, asked: Any) -> Any:
        """Which of the problems that ask have this Hessian at y, as a random product tells.

        Matrices with the same product have a difference that does not see the vector, which for a
        random one does not happen by chance; and a product takes a share of a Hessian's time.
        """
        if not asked.any():
            return asked
        if self.last[0] is not y:
            self.value_and_grad(y)
        _, at, grad = self.last
        probe = take_in(np.random.default_rng(0).standard_normal(y.shape[-1]), y)
        (found,) = gradients([grad], [at], [probe])
        size = matrix.abs() @ probe.abs()
        same = (found - matrix @ probe).abs() <= ROUNDING * torch.finfo(y.dtype).eps * size
        return asked & same.all(-1, keepdim=True)

    def function(self, _: None, y: Any) -> Any:
        """As a function of (x, y), where x is already in it."""
        return self.all(self.arrays, y)

    def in_parts(self, find: Callable, y: Any) -> Any:
        """find(function, y) of all problems, a part after the other."""
        some = lambda arrays, y: find(Function(self.stack, arrays), y)
        return self.stack.in_parts(some, self.arrays, y)

    def each(self, y: Any) -> Iterator[tuple[Function, Any]]:
        """One problem after the other."""
        alone = self.stack._replace(levels=())
        for arrays, own in self.stack.each(self.arrays, y):
            yield Function(alone, arrays), own


def pullback(function: Callable, *points: Any) -> Callable:
    """Products of vectors with the derivatives of a function at a point."""
    return torch.func.vjp(function, *points)[1]


def jacobian(function: Callable) -> Callable:
    """The matrix of derivatives in y of a function of (arrays, y)."""

    def matrix(arrays: tuple, y: Any) -> Any:
        pull = pullback(lambda y: function(arrays, y), y)
        return torch.func.vmap(lambda unit: pull(unit)[0])(eye(y.shape[0], y))

    return matrix
