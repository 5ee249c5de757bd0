"""Products with rows that stay in memory, each made once.

    z = X q,   and in derivatives   X^T w,   X v

The last few products are kept. A gradient of g at a new x and the last y then reads no row, and
neither do values and products at a point whose gradient is known.
Rows that are mostly zeros are multiplied as SciPy's sparse array where that takes less
(ops/traced/sparse_rows.py says when).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from untuned.ops.traced import sparse_rows
from untuned.util import watch

KEPT = 4  # products of a kind, at most
SHARE = 8  # of the rows' memory: one part in so many for what is kept of a kind, or one product
AT_ONCE = 64  # columns of a matrix of the rows, between which there is a look at the clock
WIDEST = 4  # numbers of a product for each column of the rows: of more, copies would take memory
TIMES = {
    torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.mv, torch.Tensor.mv,
    torch.mm, torch.Tensor.mm,
}  # fmt: skip


class Rows:
    """A matrix X, one row for each example."""

    def __init__(self, array: torch.Tensor):
        self.array, self.version = array, array._version
        self.count, self.columns = array.shape
        self.sparse = sparse_rows.of(array.numpy())
        self.nonzeros = self.array.numel() if self.sparse is None else self.sparse.nnz
        self.keeps = True  # products, for the next time
        self._times: deque[tuple[torch.Tensor, torch.Tensor]] = deque()
        self._back: deque[tuple[torch.Tensor, torch.Tensor]] = deque()
        self._probe: torch.Tensor | None = None

    def times(self, vectors: torch.Tensor) -> torch.Tensor:
        """X q."""
        return self._known(self._times, vectors, lambda: self._multiply(vectors, False))

    def back(self, weights: torch.Tensor) -> torch.Tensor:
        """X^T w."""
        return self._known(self._back, weights, lambda: self._multiply(weights, True))

    def _multiply(self, factor: torch.Tensor, turned: bool) -> torch.Tensor:
        if self.sparse is None:
            return (self.array.t() if turned else self.array) @ factor
        return torch.from_numpy((self.sparse.T if turned else self.sparse) @ factor.numpy())

    def _known(
        self, kept: deque, factor: torch.Tensor, product: Callable[[], torch.Tensor]
    ) -> torch.Tensor:
        for before, result in kept:
            if before.shape == factor.shape and torch.equal(before, factor):
                return result.clone()  # which the caller may write to
        result = product()
        if self.keeps:
            kept.append((factor.clone(), result.clone()))
            width = max(1, factor.numel() // len(factor))
            if len(kept) > max(1, min(KEPT, self.columns // (SHARE * width))):
                kept.popleft()
        return result

    def probe(self, like: torch.Tensor) -> torch.Tensor:
        """Random numbers for each row, to tell two linear maps apart by."""
        if self._probe is None or self._probe.shape != like.shape:
            self._probe = random_like(like)
        return self._probe

    def weighted(self, weights: torch.Tensor) -> torch.Tensor | None:
        """X^T (w * X) for each column of weights; None where time was up before."""
        count = weights.shape[1]
        found = torch.empty(count, self.columns, self.columns, dtype=weights.dtype)
        # A number with its column takes as long as eight multiplications of dense matrices.
        sparse = self.sparse is not None and 8 * self.nonzeros < self.array.numel()
        group = max(1, AT_ONCE // self.columns)
        for first in range(0, count, group):
            some = weights[:, first : first + group, None]
            for start in range(0, self.columns, AT_ONCE):
                if watch.says_stop():
                    return None
                part = self.array[:, None, start : start + AT_ONCE]
                scaled = (some * part).reshape(self.count, -1)
                if sparse:
                    block = torch.from_numpy(self.sparse.T @ scaled.numpy())
                else:
                    block = self.array.t() @ scaled
                block = block.reshape(self.columns, -1, part.shape[2]).transpose(0, 1)
                found[first : first + group, :, start : start + AT_ONCE] = block
        return found


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Rows, vectors: torch.Tensor) -> torch.Tensor:
        ctx.rows = rows
        return rows.times(vectors.detach())

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return None, _Back.apply(ctx.rows, grads[0])


class _Back(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Rows, weights: torch.Tensor) -> torch.Tensor:
        ctx.rows = rows
        return rows.back(weights.detach())

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return None, _Times.apply(ctx.rows, grads[0])


class Multiplying(TorchFunctionMode):
    """Inside, products with known rows are made by `Rows`; `found` has all of them.

    Where it `cuts`, the results are variables of their own: nothing leads back from them.
    """

    def __init__(self, rows_of: Callable[[torch.Tensor], Rows | None], cuts: bool = False):
        super().__init__()
        self._rows_of, self._cuts = rows_of, cuts
        self.found: list[tuple[Rows, torch.Tensor, torch.Tensor]] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in TIMES and len(args) == 2 and not kwargs:
            product = self._product(*args)
            if product is not None:
                return product
        if func is torch.nn.functional.linear and len(args) >= 2:
            weight, *bias = (*args[1:], *kwargs.values())
            product = self._product(args[0], weight.t())
            if product is not None:
                return product + bias[0] if bias and bias[0] is not None else product
        return func(*args, **kwargs)

    def _product(self, array: Any, vectors: Any) -> torch.Tensor | None:
        rows = self._rows_of(array) if isinstance(array, torch.Tensor) else None
        if rows is None or not _fits(rows, vectors):
            return None
        if self._cuts:
            for known, q, z in self.found:
                if known is rows and q is vectors:  # the same product written twice
                    return z.clone()
            variable = rows.times(vectors.detach()).requires_grad_()
            self.found.append((rows, vectors, variable))
            return variable.clone()  # which the function may write to
        result = _Times.apply(rows, vectors)
        self.found.append((rows, vectors, result))
        return result


def _fits(rows: Rows, vectors: Any) -> bool:
    """Whether these are some plain vectors, few enough for their products to be kept."""
    return (
        isinstance(vectors, torch.Tensor)
        and vectors.dtype == rows.array.dtype
        and vectors.device == rows.array.device
        and vectors.layout == torch.strided
        and vectors.ndim in (1, 2)
        and len(vectors) == rows.columns
        and vectors.numel() <= WIDEST * rows.columns**2
        and not torch.is_autocast_enabled("cpu")
    )


def can_be_rows(array: Any) -> bool:
    """Whether products with this array can be made by `Rows`."""
    return (
        isinstance(array, torch.Tensor)
        and array.ndim == 2
        and array.dtype in (torch.float32, torch.float64)
        and array.device.type == "cpu"
        and array.layout == torch.strided
        and not array.requires_grad
        and min(array.shape) > 1
    )


def random_like(array: torch.Tensor) -> torch.Tensor:
    """The same random numbers each time, to tell two linear maps apart by."""
    numbers = np.random.default_rng(0).standard_normal(tuple(array.shape))
    return torch.from_numpy(numbers).to(array.dtype)
