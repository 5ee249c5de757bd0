"""What `untuned.solution` needs of torch: stacks of small problems (`torch_stack`), and their roots
as functions that autograd and `torch.func` can differentiate and map."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch._C._functorch import TransformType
from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters

from untuned.ops import torch_stack
from untuned.ops.torch import products
from untuned.ops.torch_stack import Function, Stack, jacobian, pullback

where, isfinite, zeros_like = torch.where, torch.isfinite, torch.zeros_like
maximum, eye, diagonal, largest, smallest, sort = (
    torch_stack.maximum, torch_stack.eye, torch_stack.diagonal, torch_stack.largest,
    torch_stack.smallest, torch_stack.sort,
)  # fmt: skip
broadcast_to, broadcast_shapes = torch.broadcast_to, torch.broadcast_shapes
join, stack, solve, solver = torch.cat, torch.stack, torch_stack.solve, torch_stack.solver
cholesky, cholesky_solve = torch_stack.cholesky, torch_stack.cholesky_solve
take_in, numbers, is_known = torch_stack.take_in, torch_stack.numbers, torch_stack.is_known
reads_more, while_loop = torch_stack.reads_more, torch_stack.while_loop


class Root(NamedTuple):
    """How a root is found and what it is a root of."""

    stack: Stack
    optimality: Callable  # of (arrays, y, grad), grad a function of y
    find: Callable  # of (Function, y0): y, a code, a factor of d residual / d y or nothing of it
    marks: Callable  # of the codes: by what to multiply the derivative
    solve: Callable | None = None  # of (product, b) where there is to be no matrix

    def residual(self, arrays: tuple, y: Any) -> Any:
        return self.optimality(arrays, y, partial(self.stack.grad, arrays))

    def telling(self, wanted: list[int]) -> Callable:
        """The residual plus nothing, but NaN in the derivative where that of the residual is.

        A g that does not depend on an array would else have a derivative of zero in it, solution
        or not.
        """

        def residual(arrays: tuple, y: Any) -> Any:
            return self.residual(arrays, y) + sum((0 * arrays[k]).sum() for k in wanted)

        return residual

    def product(self, arrays: tuple, y: Any, v: Any) -> Any:
        """The derivative in y of the residual, a symmetric matrix, times v."""
        return pullback(lambda y: self.residual(arrays, y), y)(v)[0]

    def linear_solve(self, arrays: tuple, y: Any, b: Any, lower: Any) -> Any:
        """u with (d residual / d y) u = b, without a derivative of its own."""
        if lower.numel():
            return cholesky_solve(lower, b)
        if self.solve is None:
            matrices = self.stack.over(jacobian(self.residual))
            return self.stack.in_parts(
                lambda arrays, y, b: solve(matrices(arrays, y), b[..., None])[..., 0],
                arrays, y, b.expand(y.shape),
            )  # fmt: skip
        problems = zip(
            Function(self.stack, arrays).each(y), b.reshape(-1, b.shape[-1]), strict=True
        )
        solved = [
            self.solve(partial(products(one.function, (), y), wrt="y"), own)
            for (one, y), own in problems
        ]
        return torch.stack(solved).reshape(b.shape)

    def stacked(self, dims: tuple, arrays: tuple) -> tuple[Root, tuple]:
        """The root for one more level of stacking, and the arrays with that level first."""
        level = tuple(dim is not None for dim in dims)
        stack = self.stack._replace(levels=(level, *self.stack.levels))
        moved = (_first(array, dim) for array, dim in zip(arrays, dims, strict=True))
        return self._replace(stack=stack), tuple(moved)


def is_forward_twice() -> bool:
    """Whether forward mode runs within forward mode, which torch drops from custom functions."""
    transforms = retrieve_all_functorch_interpreters()
    return sum(transform.key() == TransformType.Jvp for transform in transforms) > 1


def _first(array: Any, dim: int | None) -> Any:
    return array if dim is None else array.movedim(dim, 0)


def _full(array: Any, dim: int | None, count: int) -> Any:
    return array.expand(count, *array.shape) if dim is None else array.movedim(dim, 0)


def _wanted(needed: tuple[bool, ...]) -> list[int]:
    return [k for k, need in enumerate(needed) if need]


def _may_be_nan(array: Any) -> bool:
    """Whether an entry is NaN, or nobody knows, as inside `torch.func.vmap`."""
    return not is_known(array) or bool(array.isnan().any())


def _pulled(function: Callable, arrays: tuple, u: Any, needed: tuple[bool, ...]) -> list[Any]:
    """The products of u with the derivatives of a function in the arrays that need one."""
    wanted = _wanted(needed)
    pulled: list[Any] = [None] * len(arrays)
    moving = _of_some(function, arrays, wanted)
    pull = pullback(moving, *(arrays[k] for k in wanted))
    for k, gradient in zip(wanted, pull(u), strict=True):
        pulled[k] = gradient
    return pulled


def _pushed(function: Callable, arrays: tuple, tangents: tuple, like: Any) -> Any:
    """How a function moves with the arrays that have a tangent; `like` has its value's shape.

    Products with a matrix from the right, as the derivative of those from the left: plain forward
    mode cannot be nested.
    """
    wanted = [k for k, tangent in enumerate(tangents) if tangent is not None]
    if not wanted:
        return torch.zeros_like(like)
    pull = pullback(_of_some(function, arrays, wanted), *(arrays[k] for k in wanted))
    return pullback(pull, torch.zeros_like(like))(tuple(tangents[k] for k in wanted))[0]


def _of_some(function: Callable, arrays: tuple, wanted: list[int]) -> Callable:
    """The function of all arrays as one of those wanted, with the others as they are."""

    def moving(*some: Any) -> Any:
        every = list(arrays)
        for k, array in zip(wanted, some, strict=True):
            every[k] = array
        return function(tuple(every))

    return moving


class Argmin(torch.autograd.Function):
    """y with residual(arrays, y) = 0, with derivatives of any order in the arrays."""

    @staticmethod
    def forward(root: Root, y0: Any, *arrays: Any) -> tuple[Any, Any, Any]:
        arrays = tuple(array.detach() for array in arrays)
        return root.find(Function(root.stack, arrays), y0.detach())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        ctx.root, _, *arrays = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(*arrays, *output)
        ctx.save_for_forward(*arrays, *output)

    @staticmethod
    def backward(ctx: Any, y_bar: Any, *_: Any) -> tuple:
        *saved, y, codes, matrix = ctx.saved_tensors
        root, arrays, needed = ctx.root, tuple(saved), ctx.needs_input_grad[2:]
        marks = root.marks(codes)
        u = LinearSolve.apply(root, matrix, y_bar * marks, y, *arrays)
        # Passes over all arrays, for problems that have no solution.
        telling = root.telling(_wanted(needed)) if _may_be_nan(marks) else root.residual
        residual = root.stack.over(telling)
        return None, None, *_pulled(lambda arrays: residual(arrays, y), arrays, -u, needed)

    @staticmethod
    def jvp(ctx: Any, _: Any, __: Any, *tangents: Any) -> tuple[Any, Any, Any]:
        *saved, y, codes, matrix = ctx.saved_tensors
        root, arrays = ctx.root, tuple(saved)
        # What torch saves of an output for forward mode has lost its derivatives in reverse mode.
        y = Argmin.apply(root, y, *arrays)[0]
        residual = root.stack.over(root.residual)
        moved = _pushed(lambda arrays: residual(arrays, y), arrays, tangents, y)
        return LinearSolve.apply(root, matrix, -moved * root.marks(codes), y, *arrays), None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple, root: Root, y0: Any, *arrays: Any) -> tuple:
        root, arrays = root.stacked(in_dims[2:], arrays)
        y0 = _full(y0, in_dims[1], info.batch_size)
        return Argmin.apply(root, y0, *arrays), (0, 0, 0)


class LinearSolve(torch.autograd.Function):
    """u with J u = b, J the symmetric derivative in y of the root's residual."""

    @staticmethod
    def forward(root: Root, matrix: Any, b: Any, y: Any, *arrays: Any) -> Any:
        still = tuple(array.detach() for array in arrays)
        return root.linear_solve(still, y.detach(), b.detach(), matrix.detach())

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        ctx.root, matrix, _, y, *arrays = inputs
        ctx.save_for_backward(*arrays, y, matrix, output)
        ctx.save_for_forward(*arrays, y, matrix, output)

    @staticmethod
    def backward(ctx: Any, u_bar: Any) -> tuple:
        *saved, y, matrix, u = ctx.saved_tensors
        root, arrays = ctx.root, tuple(saved)
        w = LinearSolve.apply(root, matrix, u_bar, y, *arrays)
        product, needed = root.stack.over(root.product), ctx.needs_input_grad[3:]
        in_y, *in_arrays = _pulled(
            lambda all: product(all[1:], all[0], u), (y, *arrays), -w, needed
        )
        return None, None, w, in_y, *in_arrays

    @staticmethod
    def jvp(ctx: Any, _: Any, __: Any, b: Any, *tangents: Any) -> Any:
        *saved, y, matrix, u = ctx.saved_tensors
        root, arrays = ctx.root, tuple(saved)
        product = root.stack.over(root.product)
        moved = _pushed(lambda all: product(all[1:], all[0], u), (y, *arrays), tangents, u)
        return LinearSolve.apply(root, matrix, (0 if b is None else b) - moved, y, *arrays)

    @staticmethod
    def vmap(info: Any, in_dims: tuple, root: Root, *given: Any) -> tuple:
        matrix, b, y = (
            _full(part, dim, info.batch_size)
            for part, dim in zip(given[:3], in_dims[1:4], strict=True)
        )
        root, arrays = root.stacked(in_dims[4:], given[3:])
        return LinearSolve.apply(root, matrix, b, y, *arrays), 0


class Held(torch.autograd.Function):
    """What `search` says of a program, which has no derivative."""

    @staticmethod
    def forward(search: Callable, *arrays: Any) -> tuple[Any, Any]:
        return search(tuple(array.detach() for array in arrays))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        ctx.mark_non_differentiable(*output)

    @staticmethod
    def backward(ctx: Any, *_: Any) -> tuple:
        return (None,) * 7

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> tuple[None, None]:
        return None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple, search: Callable, *arrays: Any) -> tuple:
        full = (
            _full(array, dim, info.batch_size)
            for array, dim in zip(arrays, in_dims[1:], strict=True)
        )
        return Held.apply(search, *full), (0, 0)


def active_solution(
    search: Callable, solve: Callable, tell: Callable, program: Any, marks: Callable
) -> Any:
    """`solve(program, held)`, differentiable in the program, with what `search` says is held."""

    def told(arrays: tuple) -> tuple[Any, Any]:
        held, code = search(type(program)(*arrays))
        tell(code)
        return held, code

    held, code = Held.apply(told, *program)
    return solve(program, held) * marks(code)
