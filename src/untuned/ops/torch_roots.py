"""What `untuned.solution` needs of torch: stacks of small problems (`torch_stack`), and their roots
as functions that autograd and `torch.func` can differentiate and map."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

from untuned.ops import torch_stack
from untuned.ops.torch import products
from untuned.ops.torch_stack import Function, Stack, jacobian, pullback

where, isfinite, zeros_like = torch.where, torch.isfinite, torch.zeros_like
maximum, eye, largest, smallest, sort = (
    torch_stack.maximum, torch_stack.eye, torch_stack.largest, torch_stack.smallest,
    torch_stack.sort,
)  # fmt: skip
join, stack, solve = torch.cat, torch.stack, torch_stack.solve
cholesky, cholesky_solve = torch_stack.cholesky, torch_stack.cholesky_solve
take_in, numbers, is_known = torch_stack.take_in, torch_stack.numbers, torch_stack.is_known
reads_more, while_loop = torch_stack.reads_more, torch_stack.while_loop


class Root(NamedTuple):
    """How a root is found and what it is a root of."""

    stack: Stack
    optimality: Callable  # of (y, grad), grad a function of y
    find: Callable  # of (Function, y0): y and a code
    marks: Callable  # of the codes: by what to multiply the derivative
    solve: Callable | None = None  # of (product, b) where there is to be no matrix

    def residual(self, arrays: tuple, y: Any) -> Any:
        # Nothing, but NaN where the derivative is: a g that does not depend on an array would else
        # have a derivative of zero in it, solution or not.
        nothing = sum((0 * array).sum() for array in arrays if array.is_floating_point())
        return self.optimality(y, partial(self.stack.grad, arrays)) + nothing

    def transposed_solve(self, arrays: tuple, y: Any, b: Any) -> Any:
        """u with (d residual / d y)^T u = b."""
        if self.solve is not None:
            return LinearSolve.apply(self, b, y, *arrays)
        matrix = self.stack.over(jacobian(self.residual))(arrays, y)
        return solve(matrix.mT, b[..., None])[..., 0]

    def stacked(self, dims: tuple, arrays: tuple) -> tuple[Root, tuple]:
        """The root for one more level of stacking, and the arrays with that level first."""
        level = tuple(dim is not None for dim in dims)
        stack = self.stack._replace(levels=(level, *self.stack.levels))
        moved = (_first(array, dim) for array, dim in zip(arrays, dims, strict=True))
        return self._replace(stack=stack), tuple(moved)


def _first(array: Any, dim: int | None) -> Any:
    return array if dim is None else array.movedim(dim, 0)


def _full(array: Any, dim: int | None, count: int) -> Any:
    return array.expand(count, *array.shape) if dim is None else array.movedim(dim, 0)


def _pulled(function: Callable, arrays: tuple, u: Any, needed: tuple[bool, ...]) -> list[Any]:
    """The products of u with the derivatives of a function in the arrays that need one."""
    wanted = [k for k, need in enumerate(needed) if need]

    def moving(*some: Any) -> Any:
        every = list(arrays)
        for k, array in zip(wanted, some, strict=True):
            every[k] = array
        return function(tuple(every))

    pulled: list[Any] = [None] * len(arrays)
    pull = pullback(moving, *(arrays[k] for k in wanted))
    for k, gradient in zip(wanted, pull(u), strict=True):
        pulled[k] = gradient
    return pulled


class Argmin(torch.autograd.Function):
    """y with residual(arrays, y) = 0, with derivatives of any order in the arrays."""

    @staticmethod
    def forward(root: Root, y0: Any, *arrays: Any) -> tuple[Any, Any]:
        arrays = tuple(array.detach() for array in arrays)
        return root.find(Function(root.stack, arrays), y0.detach())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        ctx.root, _, *arrays = inputs
        y, codes = output
        ctx.mark_non_differentiable(codes)
        ctx.save_for_backward(*arrays, y, codes)

    @staticmethod
    def backward(ctx: Any, y_bar: Any, _: Any) -> tuple:
        *saved, y, codes = ctx.saved_tensors
        root, arrays = ctx.root, tuple(saved)
        u = root.transposed_solve(arrays, y, y_bar * root.marks(codes))
        residual, needed = root.stack.over(root.residual), ctx.needs_input_grad[2:]
        return None, None, *_pulled(lambda arrays: residual(arrays, y), arrays, -u, needed)

    @staticmethod
    def vmap(info: Any, in_dims: tuple, root: Root, y0: Any, *arrays: Any) -> tuple:
        root, arrays = root.stacked(in_dims[2:], arrays)
        y0 = _full(y0, in_dims[1], info.batch_size)
        return Argmin.apply(root, y0, *arrays), (0, 0)


class LinearSolve(torch.autograd.Function):
    """u with H u = b, H the Hessian of the root's function, without making a matrix of it."""

    @staticmethod
    def forward(root: Root, b: Any, y: Any, *arrays: Any) -> Any:
        function = Function(root.stack, tuple(array.detach() for array in arrays))
        problems = zip(function.each(y.detach()), b.reshape(-1, b.shape[-1]), strict=True)
        solve = root.solve
        assert solve is not None
        solved = [
            solve(partial(products(one.function, (), y), wrt="y"), own)
            for (one, y), own in problems
        ]
        return torch.stack(solved).reshape(b.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        ctx.root, _, y, *arrays = inputs
        ctx.save_for_backward(*arrays, y, output)

    @staticmethod
    def backward(ctx: Any, u_bar: Any) -> tuple:
        *saved, y, u = ctx.saved_tensors
        root, arrays = ctx.root, tuple(saved)
        w = LinearSolve.apply(root, u_bar, y, *arrays)
        product, needed = root.stack.over(root.stack.product), ctx.needs_input_grad[2:]
        in_y, *in_arrays = _pulled(
            lambda all: product(all[1:], all[0], u), (y, *arrays), -w, needed
        )
        return None, w, in_y, *in_arrays

    @staticmethod
    def vmap(info: Any, in_dims: tuple, root: Root, b: Any, y: Any, *arrays: Any) -> tuple:
        root, arrays = root.stacked(in_dims[3:], arrays)
        b = _full(b, in_dims[1], info.batch_size)
        y = _full(y, in_dims[2], info.batch_size)
        return LinearSolve.apply(root, b, y, *arrays), 0
