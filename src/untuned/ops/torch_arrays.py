"""How arrays come to PyTorch, what is said of them, and how they leave it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import optree
import torch

from untuned.ops import Tree, UntraceableError, eager


def precision(tree: Tree, /) -> AbstractContextManager:
    return nullcontext()


def asarray(leaf: Any, like: Any = None, /) -> Any:
    tensor = leaf.detach() if isinstance(leaf, torch.Tensor) else _from_numpy(leaf)
    if tensor.is_inference():  # as embeddings often are; autograd keeps only copies of such
        tensor = tensor.clone()
    if like is None:
        return tensor
    if tensor.dtype == torch.float64 and like.dtype == torch.float32:
        eager.in_dtype(to_numpy(tensor), np.float32)  # which may warn
    return tensor.to(like.device, like.dtype if tensor.is_floating_point() else None)


def _from_numpy(leaf: Any) -> torch.Tensor:
    array = np.asarray(leaf)
    if array.dtype.kind == "f" and array.itemsize > 8:  # which torch does not have
        array = array.astype(np.float64)
    # Torch takes neither foreign byte orders nor negative strides, and warns of read-only memory.
    array = np.asarray(array, array.dtype.newbyteorder("="), order="C")
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def without_copy(array: np.ndarray, like: Any, /) -> Any:
    return asarray(array, like)


def dtype_name(leaf: Any, /) -> str:
    return str(leaf.dtype).removeprefix("torch.")


def device_name(leaf: Any, /) -> str:
    return str(leaf.device)


def to_numpy(leaf: Any, /) -> np.ndarray:
    return leaf.detach().cpu().numpy() if isinstance(leaf, torch.Tensor) else np.asarray(leaf)


to_host = partial(eager.to_host, to_numpy)
from_host = partial(eager.from_host, asarray)
pieces = partial(eager.pieces, to_numpy)


def sync(tree: Tree, /) -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def head(data: Tree, count: int | None, /) -> Tree:
    return optree.tree_map(lambda leaf: leaf[:count], data)


def output_of(fn: Callable, /, *args: Tree) -> tuple[tuple[int, ...], str]:
    if torch.is_inference_mode_enabled():
        raise UntraceableError(
            "is called within torch.inference_mode(), where torch takes no gradients; leave it "
            "around this call (torch.no_grad() does no harm)."
        )
    with torch.no_grad():
        out = fn(*args)
    if not isinstance(out, torch.Tensor):
        return (), f"{type(out).__name__}, which is no tensor"
    return tuple(out.shape), dtype_name(out)
