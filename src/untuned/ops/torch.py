"""The operations of :class:`untuned.ops.Ops` on PyTorch: eager, loops in plain Python.

Derivatives come straight from the autograd engine, which `torch.func.vjp` wraps as well, and
scalars of a run are Python floats: for small models the wrapper, and tensors of one number, would
each cost a good part of a step (docs/performance.md). A tree of one tensor is met so often that
it goes past optree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import optree
import torch
from torch.autograd.function import BackwardCFunction

from untuned.ops import Scalar, Tree, eager, torch_arrays
from untuned.ops.eager import in_form, tree_leaves

name = "torch"
AT_ONCE = 64  # columns of a Hessian that are made at a time

compiles = eager.compiles
flatten, unflatten, paths = eager.flatten, eager.unflatten, eager.paths
tree_map, size, unravel = eager.tree_map, eager.size, eager.unravel
hypot, isfinite, maximum, floor = eager.hypot, eager.isfinite, eager.maximum, eager.floor
logical_not = eager.logical_not
scalar, number, counter, cast = eager.scalar, eager.number, eager.counter, eager.cast
where, cond, while_loop, scan = eager.where, eager.cond, eager.while_loop, eager.scan
repeat, swap_row, compile = eager.repeat, eager.swap_row, eager.compile
was_cut, compile_seconds = eager.was_cut, eager.compile_seconds
max_over_processes, sum_over_processes = eager.max_over_processes, eager.sum_over_processes
is_main_process, same_on_all = eager.is_main_process, eager.same_on_all
as_given, place_like = eager.as_given, eager.place_like
precision, sync, head = torch_arrays.precision, torch_arrays.sync, torch_arrays.head
asarray, without_copy = torch_arrays.asarray, torch_arrays.without_copy
dtype_name, device_name = torch_arrays.dtype_name, torch_arrays.device_name
to_numpy, to_host, from_host = torch_arrays.to_numpy, torch_arrays.to_host, torch_arrays.from_host
pieces, output_of = torch_arrays.pieces, torch_arrays.output_of


def zeros_like(tree: Tree, /) -> Tree:
    return tree_map(torch.zeros_like, tree)


def axpy(a: Scalar, x: Tree, y: Tree, /) -> Tree:
    return tree_map(lambda xi, yi: torch.add(yi, xi, alpha=a), x, y)


def sub(a: Tree, b: Tree, /) -> Tree:
    return tree_map(torch.sub, a, b)


def dot(a: Tree, b: Tree, /) -> Scalar:
    pairs = zip(tree_leaves(a), tree_leaves(b), strict=True)
    return sum(torch.sum(ai * bi).item() for ai, bi in pairs)


def norm(tree: Tree, /) -> Scalar:
    leaves = tree_leaves(tree)
    if len(leaves) == 1:
        return torch.linalg.vector_norm(leaves[0]).item()
    return torch.nn.utils.get_total_norm(leaves).item()


def ravel(tree: Tree, /) -> Any:
    return torch.cat([leaf.reshape(-1) for leaf in tree_leaves(tree)])


def stack(tree: Tree, count: int, /) -> Tree:
    return tree_map(lambda leaf: torch.stack([leaf] * count), tree)


def push(stack: Tree, tree: Tree, /) -> Tree:
    return tree_map(lambda old, new: torch.cat([old[1:], new[None]]), stack, tree)


def equal(a: Tree, b: Tree, /) -> Scalar:
    pairs = zip(tree_leaves(a), tree_leaves(b), strict=True)
    return all(torch.equal(ai, bi) for ai, bi in pairs)


def in_order(tree: Tree, /) -> Tree:
    if all(leaf.is_contiguous() for leaf in optree.tree_leaves(tree) if hasattr(leaf, "stride")):
        return tree  # asked in each step, and nearly always so
    return optree.tree_map(lambda a: a.contiguous() if hasattr(a, "stride") else a, tree)


def take(tree: Tree, indices: Any, /) -> Tree:
    rows = torch.as_tensor(indices)
    return tree_map(lambda leaf: leaf.index_select(0, rows.to(leaf.device)), tree)


def array(value: Scalar, like: Tree, /) -> Any:
    model = tree_leaves(like)[0]
    return torch.tensor(value, dtype=model.dtype, device=model.device)


def epsilon(like: Tree, /) -> float:
    return torch.finfo(tree_leaves(like)[0].dtype).eps


def matrix(product: Callable, size: int, like: Tree, /) -> Any:
    model = tree_leaves(like)[0]
    units = torch.eye(size, dtype=model.dtype, device=model.device)
    return torch.stack(eager.columns(product, units))


def eigh(matrix: Any, /) -> tuple[Any, Any]:
    if not torch.isfinite(matrix).all():  # which LAPACK refuses, and JAX lets through
        return torch.full_like(matrix[0], math.nan), torch.full_like(matrix, math.nan)
    values, vectors = torch.linalg.eigh(matrix)
    return values, vectors


def inverse(matrix: Any, /) -> Any:
    factor, failed = torch.linalg.cholesky_ex(matrix)
    return torch.full_like(matrix, math.nan) if failed.any() else torch.cholesky_inverse(factor)


def clip(array: Any, low: Any, high: Any, /) -> Any:
    return torch.clamp(array, low, high)


def simplex(tree: Tree, /) -> Tree:
    return tree_map(_simplex, tree)


def _simplex(array: Any) -> Any:
    if not array.numel():
        return array  # nothing to sum to one
    # The same for all shifts, and with this one large entries do not round the sum away from one.
    array = array - array.max()
    flat = array.flatten()
    descending = torch.sort(flat, descending=True).values
    ranks = torch.arange(1, flat.numel() + 1, dtype=flat.dtype, device=flat.device)
    excess = (torch.cumsum(descending, 0) - 1) / ranks
    threshold = excess[torch.sum(descending > excess) - 1]
    return torch.clamp(array - threshold, min=0)


def tracked(tree: Tree) -> tuple[list[torch.Tensor], Tree]:
    """Leaves that derivatives are taken in, alone and as a tree."""
    if isinstance(tree, torch.Tensor):
        leaf = tree.detach().requires_grad_()
        return [leaf], leaf
    leaves, structure = optree.tree_flatten(tree)
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    return leaves, optree.tree_unflatten(structure, leaves)


def gradients(result: Any, leaves: list[torch.Tensor], v: Any = None, **options: Any) -> list:
    """Gradients in the leaves, of <result, v> where v is given; zero where it depends on none.

    Of a number: gradients that are given to torch's engine make it import sympy.
    """
    if v is not None:
        kept = [(part, w) for part, w in zip(result, v, strict=True) if part.requires_grad]
        with torch.enable_grad():
            result = [sum((part * w).sum() for part, w in kept)] if kept else []
    if not result or not result[0].requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    found = torch.autograd.grad(
        result[0], leaves, allow_unused=True, materialize_grads=True, **options
    )
    # An embedding may give the gradients of the rows it has used alone.
    return [part.to_dense() if part.is_sparse else part for part in found]


def value(fn: Callable, x: Tree, y: Tree, /) -> Scalar:
    with torch.no_grad():
        return fn(x, y).item()


def value_and_grads(fn: Callable, x: Tree, y: Tree, /) -> tuple[Scalar, Tree, Tree]:
    (x_leaves, x), (y_leaves, y) = tracked(x), tracked(y)
    with torch.enable_grad():
        result = fn(x, y)
    both = gradients([result], x_leaves + y_leaves)
    in_x, in_y = both[: len(x_leaves)], both[len(x_leaves) :]
    return result.item(), in_form(x, in_x), in_form(y, in_y)


def grad_y(fn: Callable, x: Tree, y: Tree, /) -> Tree:
    y_leaves, y = tracked(y)
    with torch.enable_grad():
        result = fn(x, y)
    return in_form(y, gradients([result], y_leaves))


def value_and_grad_y(fn: Callable, x: Tree, y: Tree, /) -> tuple[Scalar, Tree]:
    y_leaves, y = tracked(y)
    with torch.enable_grad():
        result = fn(x, y)
    return result.item(), in_form(y, gradients([result], y_leaves))


def linearize(fn: Callable, x: Tree, y: Tree, /) -> tuple[Tree, Callable]:
    (x_leaves, x), (y_leaves, y) = tracked(x), tracked(y)
    with torch.enable_grad():
        result = fn(x, y)
        gradient = gradients([result], y_leaves, create_graph=True)
    wanted = {"x": x_leaves, "y": y_leaves, "xy": x_leaves + y_leaves}

    def pull(v: Tree, wrt: str) -> Tree:
        products = gradients(gradient, wanted[wrt], tree_leaves(v), retain_graph=True)
        if wrt == "xy":
            split = len(x_leaves)
            return in_form(x, products[:split]), in_form(y, products[split:])
        return in_form(x if wrt == "x" else y, products)

    return in_form(y, [part.detach() for part in gradient]), pull


def products(fn: Callable, x: Tree, y: Tree, /) -> Callable:
    return linearize(fn, x, y)[1]


def has_own_functions(fn: Callable, x: Tree, y: Tree) -> bool:
    """Whether fn(x, y) uses a `torch.autograd.Function` written in Python."""
    (_, x), (_, y) = tracked(x), tracked(y)
    with torch.enable_grad():
        value = fn(x, y)
    nodes: list[Any] = [value.grad_fn]
    known: set[Any] = set()
    while nodes:
        node = nodes.pop()
        if node is None or node in known:
            continue
        if isinstance(node, BackwardCFunction):
            return True
        known.add(node)
        nodes.extend(following for following, _ in node.next_functions)
    return False


def hessian_price(fn: Any, x: Tree, y: Tree, /) -> float:
    # Four products of matrices for two of a matrix and a vector, which take as long as eight times
    # the multiplications; docs/lab/clock.md has measured prices.
    return min(size(y), 2 + size(y) / 4)


def hessian(fn: Any, x: Tree, y: Tree, /) -> Any:
    try:
        return _hessian_at_once(fn, x, y)
    except RuntimeError:  # not every function can take several points at a time
        pass
    pull = products(fn, x, y)
    return matrix(lambda unit: ravel(pull(unravel(unit, y), "y")), size(y), y)


def _hessian_at_once(fn: Callable, x: Tree, y: Tree) -> torch.Tensor:
    """By copies of y, one for each column: the gradient of all g(x, copy), and again.

    Twice the work of one y with many vectors, for which torch would import itself for a second:
    derivatives inside of `vmap` are those of torch.func, and these load its compiler.
    """
    vector = ravel(y).detach()

    def columns(units: torch.Tensor) -> torch.Tensor:
        copies = vector.expand(len(units), -1).clone().requires_grad_()
        with torch.enable_grad():
            total = torch.vmap(lambda copy: fn(x, unravel(copy, y)))(copies).sum()
            gradient = gradients([total], [copies], create_graph=True)
        return gradients(gradient, [copies], [units])[0]

    units = torch.eye(len(vector), dtype=vector.dtype, device=vector.device)
    return torch.cat(eager.columns(columns, units.split(AT_ONCE)))
