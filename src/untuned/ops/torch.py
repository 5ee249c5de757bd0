"""The operations of :class:`untuned.ops.Ops` on PyTorch: eager, loops in plain Python.

Derivatives come straight from the autograd engine, which `torch.func.vjp` wraps as well, and
scalars of a run are Python floats: for small models the wrapper, and tensors of one number, would
each cost a good part of a step (docs/performance.md). A tree of one tensor is met so often that
it goes past optree.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import optree
import torch

from untuned.ops import Scalar, Tree

name = "torch"

hypot = math.hypot
isfinite = math.isfinite


def tree_map(fn: Callable, tree: Tree, /, *rest: Tree) -> Tree:
    if isinstance(tree, torch.Tensor):
        return fn(tree, *rest)
    return optree.tree_map(fn, tree, *rest)


def _leaves(tree: Tree) -> list[Any]:
    return [tree] if isinstance(tree, torch.Tensor) else optree.tree_leaves(tree)


def flatten(tree: Tree, /) -> tuple[list[Any], Any]:
    return optree.tree_flatten(tree)


def unflatten(structure: Any, leaves: list[Any], /) -> Tree:
    return optree.tree_unflatten(structure, leaves)


def paths(tree: Tree, /) -> list[str]:
    return [accessor.codify("") for accessor in optree.tree_accessors(tree)]


def zeros_like(tree: Tree, /) -> Tree:
    return tree_map(torch.zeros_like, tree)


def axpy(a: Scalar, x: Tree, y: Tree, /) -> Tree:
    return tree_map(lambda xi, yi: torch.add(yi, xi, alpha=a), x, y)


def sub(a: Tree, b: Tree, /) -> Tree:
    return tree_map(torch.sub, a, b)


def size(tree: Tree, /) -> int:
    return sum(leaf.numel() for leaf in _leaves(tree))


def dot(a: Tree, b: Tree, /) -> Scalar:
    pairs = zip(_leaves(a), _leaves(b), strict=True)
    return sum(torch.sum(ai * bi).item() for ai, bi in pairs)


def norm(tree: Tree, /) -> Scalar:
    leaves = _leaves(tree)
    if len(leaves) == 1:
        return torch.linalg.vector_norm(leaves[0]).item()
    return torch.nn.utils.get_total_norm(leaves).item()


def ravel(tree: Tree, /) -> Any:
    return torch.cat([leaf.reshape(-1) for leaf in _leaves(tree)])


def unravel(vector: Any, like: Tree, /) -> Tree:
    leaves = _leaves(like)
    parts = torch.split(vector, [leaf.numel() for leaf in leaves])
    return _like(like, [p.reshape(leaf.shape) for p, leaf in zip(parts, leaves, strict=True)])


def stack(tree: Tree, count: int, /) -> Tree:
    return tree_map(lambda leaf: torch.stack([leaf] * count), tree)


def push(stack: Tree, tree: Tree, /) -> Tree:
    return tree_map(lambda old, new: torch.cat([old[1:], new[None]]), stack, tree)


def equal(a: Tree, b: Tree, /) -> Scalar:
    pairs = zip(_leaves(a), _leaves(b), strict=True)
    return all(torch.equal(ai, bi) for ai, bi in pairs)


def take(tree: Tree, indices: Any, /) -> Tree:
    rows = torch.as_tensor(indices)
    return tree_map(lambda leaf: leaf.index_select(0, rows.to(leaf.device)), tree)


def repeat(tree: Tree, count: int, /) -> Any:
    # A list and not stacked tensors: replacing one then copies references and no numbers.
    return [tree] * count


def swap_row(rows: Any, k: Scalar, tree: Tree, /) -> tuple[Tree, Any]:
    changed = list(rows)
    old, changed[int(k)] = changed[int(k)], tree
    return old, changed


def scalar(value: float, like: Tree, /) -> Scalar:
    return value


def array(value: Scalar, like: Tree, /) -> Any:
    model = _leaves(like)[0]
    return torch.tensor(value, dtype=model.dtype, device=model.device)


def number(array: Any, /) -> Scalar:
    return array.item()


def maximum(a: Scalar, b: Scalar, /) -> Scalar:
    return a if a > b or math.isnan(a) else b


def counter(value: int, /) -> Scalar:
    return value


def floor(a: Scalar, /) -> Scalar:
    return int(a)


def cast(tree: Tree, like: Tree, /) -> Tree:
    return tree


def epsilon(like: Tree, /) -> float:
    return torch.finfo(_leaves(like)[0].dtype).eps


def matrix(product: Callable, size: int, like: Tree, /) -> Any:
    model = _leaves(like)[0]
    units = torch.eye(size, dtype=model.dtype, device=model.device)
    return torch.stack([product(unit) for unit in units])


def eigh(matrix: Any, /) -> tuple[Any, Any]:
    if not torch.isfinite(matrix).all():  # which LAPACK refuses, and JAX lets through
        return torch.full_like(matrix[0], math.nan), torch.full_like(matrix, math.nan)
    values, vectors = torch.linalg.eigh(matrix)
    return values, vectors


def clip(array: Any, low: Any, high: Any, /) -> Any:
    return torch.clamp(array, low, high)


def simplex(tree: Tree, /) -> Tree:
    return tree_map(_simplex, tree)


def _simplex(array: Any) -> Any:
    # The same for all shifts, and with this one large entries do not round the sum away from one.
    array = array - array.max()
    flat = array.flatten()
    descending = torch.sort(flat, descending=True).values
    ranks = torch.arange(1, flat.numel() + 1, dtype=flat.dtype, device=flat.device)
    excess = (torch.cumsum(descending, 0) - 1) / ranks
    threshold = excess[torch.sum(descending > excess) - 1]
    return torch.clamp(array - threshold, min=0)


def where(condition: Scalar, a: Tree, b: Tree, /) -> Tree:
    # Tensors are never changed in place, so choosing a tree is choosing a reference.
    return a if condition else b


def while_loop(cond: Callable, body: Callable, carry: Tree, /) -> Tree:
    while cond(carry):
        carry = body(carry)
    return carry


def cond(condition: Scalar, if_true: Callable, if_false: Callable, /) -> Tree:
    return if_true() if condition else if_false()


def scan(fn: Callable, carry: Tree, xs: Any, length: int, reverse: bool, /) -> tuple[Tree, Any]:
    # Outs need not be stacked: a list serves as xs as well.
    outs: list[Any] = [None] * length
    for k in reversed(range(length)) if reverse else range(length):
        carry, outs[k] = fn(carry, None if xs is None else xs[k])
    return carry, outs


def _tracked(tree: Tree) -> tuple[list[torch.Tensor], Tree]:
    if isinstance(tree, torch.Tensor):
        leaf = tree.detach().requires_grad_()
        return [leaf], leaf
    leaves, structure = optree.tree_flatten(tree)
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    return leaves, optree.tree_unflatten(structure, leaves)


def _gradients(result: Any, leaves: list[torch.Tensor], v: Any = None, **options: bool) -> list:
    """Gradients in the leaves; zero where the result does not depend on them."""
    kept = [k for k, part in enumerate(result) if part.requires_grad]
    if not kept:
        return [torch.zeros_like(leaf) for leaf in leaves]
    if len(kept) < len(result):
        result = [result[k] for k in kept]
        v = None if v is None else [v[k] for k in kept]
    return list(
        torch.autograd.grad(
            result,
            leaves,
            v,
            allow_unused=True,
            materialize_grads=True,
            **options,
        )
    )


def value(fn: Callable, x: Tree, y: Tree, /) -> Scalar:
    with torch.no_grad():
        return fn(x, y).item()


def value_and_grads(fn: Callable, x: Tree, y: Tree, /) -> tuple[Scalar, Tree, Tree]:
    (x_leaves, x), (y_leaves, y) = _tracked(x), _tracked(y)
    with torch.enable_grad():
        result = fn(x, y)
    gradients = _gradients([result], x_leaves + y_leaves)
    in_x, in_y = gradients[: len(x_leaves)], gradients[len(x_leaves) :]
    return result.item(), _like(x, in_x), _like(y, in_y)


def grad_y(fn: Callable, x: Tree, y: Tree, /) -> Tree:
    y_leaves, y = _tracked(y)
    with torch.enable_grad():
        result = fn(x, y)
    return _like(y, _gradients([result], y_leaves))


def value_and_grad_y(fn: Callable, x: Tree, y: Tree, /) -> tuple[Scalar, Tree]:
    y_leaves, y = _tracked(y)
    with torch.enable_grad():
        result = fn(x, y)
    return result.item(), _like(y, _gradients([result], y_leaves))


def linearize(fn: Callable, x: Tree, y: Tree, /) -> tuple[Tree, Callable]:
    (x_leaves, x), (y_leaves, y) = _tracked(x), _tracked(y)
    with torch.enable_grad():
        result = fn(x, y)
        gradient = _gradients([result], y_leaves, create_graph=True)
    wanted = {"x": x_leaves, "y": y_leaves, "xy": x_leaves + y_leaves}

    def pull(v: Tree, wrt: str) -> Tree:
        products = _gradients(gradient, wanted[wrt], _leaves(v), retain_graph=True)
        if wrt == "xy":
            split = len(x_leaves)
            return _like(x, products[:split]), _like(y, products[split:])
        return _like(x if wrt == "x" else y, products)

    return _like(y, [part.detach() for part in gradient]), pull


def _like(tree: Tree, leaves: list[torch.Tensor]) -> Tree:
    if isinstance(tree, torch.Tensor):
        return leaves[0]
    return optree.tree_unflatten(optree.tree_structure(tree), leaves)


def products(fn: Callable, x: Tree, y: Tree, /) -> Callable:
    return linearize(fn, x, y)[1]


def precision(tree: Tree, /) -> AbstractContextManager:
    return nullcontext()


def asarray(leaf: Any, like: Any = None, /) -> Any:
    tensor = leaf.detach() if isinstance(leaf, torch.Tensor) else _from_numpy(leaf)
    if like is None:
        return tensor
    return tensor.to(like.device, like.dtype if tensor.is_floating_point() else None)


def _from_numpy(leaf: Any) -> torch.Tensor:
    array = np.asarray(leaf)
    if array.dtype == np.longdouble:  # which torch does not have
        array = array.astype(np.float64)
    # Torch takes neither foreign byte orders nor negative strides, and warns of read-only memory.
    array = np.asarray(array, array.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def lend(array: np.ndarray, like: Any, /) -> Any:
    return asarray(array, like)


def dtype_name(leaf: Any, /) -> str:
    return str(leaf.dtype).removeprefix("torch.")


def device_name(leaf: Any, /) -> str:
    return str(leaf.device)


def to_numpy(leaf: Any, /) -> np.ndarray:
    return leaf.detach().cpu().numpy() if isinstance(leaf, torch.Tensor) else np.asarray(leaf)


def sync(tree: Tree, /) -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def head(data: Tree, count: int | None, /) -> Tree:
    return optree.tree_map(lambda leaf: leaf[:count], data)


def output_of(fn: Callable, /, *args: Tree) -> tuple[tuple[int, ...], str]:
    with torch.no_grad():
        out = fn(*args)
    if not isinstance(out, torch.Tensor):
        return (), f"{type(out).__name__}, which is no tensor"
    return tuple(out.shape), dtype_name(out)


def compile(fn: Callable, /, *args: Any, effort: str = "full") -> Callable:
    return fn


# One process; `untuned.ops.group` has several.


def agree(number: float, like: Tree, /) -> float:
    return number


def total(number: int, like: Tree, /) -> int:
    return number


def leads(like: Tree, /) -> bool:
    return True


def alike(text: str, like: Tree, /) -> bool:
    return True


def to_host(tree: Tree, /) -> list[np.ndarray]:
    return [to_numpy(leaf) for leaf in flatten(tree)[0]]


def from_host(arrays: list[np.ndarray], like: Tree, /) -> Tree:
    leaves, structure = flatten(like)
    restored = [
        type(leaf)(array) if isinstance(leaf, int | float) else asarray(array, leaf)
        for array, leaf in zip(arrays, leaves, strict=True)
    ]
    return unflatten(structure, restored)


def pieces(tree: Tree, /) -> list[tuple[int, int, np.ndarray]]:
    return [(number, 0, to_numpy(leaf)) for number, leaf in enumerate(flatten(tree)[0])]


def as_given(tree: Tree, /) -> Tree:
    return tree


def beside(tree: Tree, data: Tree, /) -> Tree:
    return tree


def from_module(module: torch.nn.Module) -> tuple[dict[str, torch.Tensor], Callable]:
    """Split a module into its parameters (a tree) and a function of them.

    Returns ``(parameters, apply)`` with ``apply(parameters, *inputs)`` the module's output, so
    that the weights of a network can be the inner variable y. Buffers stay as they are in the
    module, which is not changed.

    Example
    -------
    >>> import torch, untuned
    >>> weights, apply = untuned.from_module(torch.nn.Linear(3, 2))
    >>> sorted(weights)
    ['bias', 'weight']
    >>> apply(weights, torch.ones(5, 3)).shape
    torch.Size([5, 2])
    """
    if not isinstance(module, torch.nn.Module):
        raise ValueError(
            f"from_module was given a {type(module).__name__}; it expects a torch.nn.Module."
        )
    changing = [
        type(part).__name__
        for part in module.modules()
        if part.training and getattr(part, "track_running_stats", False)
    ]
    random = [
        type(part).__name__
        for part in module.modules()
        if part.training and "dropout" in type(part).__name__.lower()
    ]
    if changing or random:
        raise ValueError(
            f"The module is in training mode and holds {(changing + random)[0]}, so the same "
            "parameters do not always give the same loss; call module.eval() first."
        )
    parameters = {key: part.detach().clone() for key, part in module.named_parameters()}
    call = torch.func.functional_call

    def apply(parameters: dict[str, torch.Tensor], *inputs: Any, **options: Any) -> Any:
        return call(module, parameters, inputs, options)

    return parameters, apply
