"""The operations of :class:`untuned.ops.Ops` on torch where the same rows are read again and again.

Each function is tried first. If its value and gradients agree with torch's up to rounding, `Rows`
makes its products. If they differ, or if there are no products, torch evaluates it (ops/torch.py).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from untuned.ops import Scalar, Tree
from untuned.ops import torch as base
from untuned.ops.torch_rows.products import Multiplying, Rows, can_be_rows, random_like
from untuned.ops.torch_rows.split import NoSplitError, Split
from untuned.ops.traced.sparse_rows import FOR_EACH, FOR_ONE

TABLES = 8  # whose products are kept at a time; a run has up to six
SAME = 1e4  # spacings of numbers, in units of the largest, by which results may differ
PER_READ = 8  # multiplications in the time that a number takes to be read
MOST_VARIABLES = 1024  # of a matrix that stays
NEXT_TO_NOTHING = 1 / 32  # products: what a Hessian costs where the matrix of the rows stays


class Form(NamedTuple):
    """How a function's second derivatives are made."""

    splits: bool  # as split.py says
    stays: bool = False  # X^T W X, whatever x and y are
    width: int = 1  # numbers of z for each row


class OnRows:
    """The operations, with what is known of the rows of a run."""

    def __init__(self) -> None:
        self._tables: OrderedDict[int, Rows] = OrderedDict()
        self._fit: dict[int, tuple[Callable, bool]] = {}  # whether products are made by `Rows`
        self._forms: dict[int, Form] = {}
        self._matrices: dict[int, tuple[Rows, list[torch.Tensor], torch.Tensor]] = {}

    def __getattr__(self, name: str) -> Any:
        found = self.__dict__[name] = getattr(base, name)  # found at once the next time
        return found

    # Derivatives

    def value(self, fn: Any, x: Tree, y: Tree, /) -> Scalar:
        return base.value(self._multiplying(fn, x, y), x, y)

    def value_and_grads(self, fn: Any, x: Tree, y: Tree, /) -> tuple[Scalar, Tree, Tree]:
        return base.value_and_grads(self._multiplying(fn, x, y), x, y)

    def grad_y(self, fn: Any, x: Tree, y: Tree, /) -> Tree:
        return base.grad_y(self._multiplying(fn, x, y), x, y)

    def value_and_grad_y(self, fn: Any, x: Tree, y: Tree, /) -> tuple[Scalar, Tree]:
        return base.value_and_grad_y(self._multiplying(fn, x, y), x, y)

    def products(self, fn: Any, x: Tree, y: Tree, /) -> Callable:
        return self.linearize(fn, x, y)[1]

    def linearize(self, fn: Any, x: Tree, y: Tree, /) -> tuple[Tree, Callable]:
        if not self._fits(fn, x, y):
            return base.linearize(fn, x, y)
        gradient, pull = base.linearize(self._inside(fn), x, y)
        known: list[Callable | None] = []  # the product by a matrix that stays

        def product(v: Tree, wrt: str) -> Tree:
            if wrt == "y" and self._form(fn, x, y).stays:
                if not known:
                    known.append(self._by_matrix(fn, x, y))
                if known[0] is not None:
                    return base.unravel(known[0](base.ravel(v)), y)
            for rows in self._tables.values():
                rows.keeps = False  # what comes is asked for once
            try:
                return pull(v, wrt)
            finally:
                for rows in self._tables.values():
                    rows.keeps = True

        return gradient, product

    def hessian(self, fn: Any, x: Tree, y: Tree, /) -> Any:
        form = self._form(fn, x, y)
        if form.splits:
            try:
                split = Split(fn, self._rows, x, y)
                found = self._matrix(fn, split)
                # Where time was up nobody reads it.
                return torch.zeros(2 * (base.size(y),)) if found is None else split.hessian(*found)
            except NoSplitError:
                self._forms[id(fn.function)] = Form(False)
        return base.hessian(fn, x, y)

    def hessian_price(self, fn: Any, x: Tree, y: Tree, /) -> float:
        form = self._form(fn, x, y)
        if form.stays:
            return NEXT_TO_NOTHING
        if not form.splits:
            return base.hessian_price(fn, x, y)
        table = self._largest(fn)
        each = table.array.numel() * table.columns / PER_READ
        if table.sparse is not None:
            each = min(each, FOR_EACH * table.nonzeros * table.columns)
        price = each * form.width * (form.width + 1) / 2 / _product(table, form.width)
        return min(float(base.size(y)), 2.0 ** round(math.log2(price)))

    def _matrix(self, fn: Any, split: Split) -> tuple[torch.Tensor, list[int]] | None:
        """X^T W X and the entries that meet z otherwise; None where time was up before.

        Not made again where it stays, as the weights of before tell.
        """
        form = self._forms[id(fn.function)]
        if form.stays and id(split.rows) in self._matrices:
            _, weights, matrix = self._matrices[id(split.rows)]
            try:
                return matrix, split.tied(weights)
            except NoSplitError:
                form = self._forms[id(fn.function)] = form._replace(stays=False)
        tied = split.tied(split.weights())
        made = split.weighted()
        if made is not None and form.stays:
            self._matrices[id(split.rows)] = split.rows, list(split.weights()), made
        return None if made is None else (made, tied)

    def _by_matrix(self, fn: Any, x: Tree, y: Tree) -> Callable | None:
        """Products with the Hessian that read no rows; None where W does not stay after all."""
        try:
            split = Split(fn, self._rows, x, y)
            found = self._matrix(fn, split)
        except NoSplitError:
            found = None
        if found is None or found[1] or split.leaf is None or not self._form(fn, x, y).stays:
            return None
        matrix = found[0]
        return lambda v: split.by_matrix(matrix, v)

    # What is known of rows and of functions

    def _multiplying(self, fn: Any, x: Tree, y: Tree) -> Callable:
        """The function, with its products by `Rows`."""
        return self._inside(fn) if self._fits(fn, x, y) else fn

    def _inside(self, fn: Any) -> Callable:
        def call(x: Tree, y: Tree) -> Any:
            with Multiplying(self._rows):
                return fn(x, y)

        return call

    def _rows(self, array: torch.Tensor) -> Rows | None:
        found = self._tables.get(id(array))
        return found if found is not None and found.version == array._version else None

    def _add(self, array: Any) -> None:
        if id(array) not in self._tables and can_be_rows(array):
            self._tables[id(array)] = Rows(array)
            if len(self._tables) > TABLES:
                self._matrices.pop(id(self._tables.popitem(last=False)[1]), None)

    def _largest(self, fn: Any) -> Rows:
        """The largest of a function's tables."""
        known = [self._rows(leaf) for leaf in base.flatten(fn.rows)[0]]
        return max(filter(None, known), key=lambda rows: rows.array.numel())

    def _fits(self, fn: Any, x: Tree, y: Tree) -> bool:
        """Whether a function's products are made by `Rows`."""
        if getattr(fn, "rows", None) is None:
            return False
        for leaf in base.flatten(fn.rows)[0]:
            self._add(leaf)
        if id(fn.function) not in self._fit:
            self._fit[id(fn.function)] = fn.function, self._is_same(fn, x, y)
        return self._fit[id(fn.function)][1]

    def _is_same(self, fn: Any, x: Tree, y: Tree) -> bool:
        """Whether it makes products with its rows, and then comes out as torch makes it."""
        # A function of Python's inside may be a compiled one, or look at how it is called.
        if base.has_own_functions(fn, x, y):
            return False
        elsewhere = _apart(y, 0.1)
        if not math.isfinite(base.value(fn, x, elsewhere)):
            elsewhere = y
        plain = base.value_and_grads(fn, x, elsewhere)
        call = self._inside(fn)
        try:
            with Multiplying(self._rows) as multiplying:
                base.value(fn, x, elsewhere)
            return bool(multiplying.found) and _alike(
                plain, base.value_and_grads(call, x, elsewhere)
            )
        except (RuntimeError, TypeError, ValueError):
            return False  # such as torch.func inside, which asks more of products than they have

    def _form(self, fn: Any, x: Tree, y: Tree) -> Form:
        if not self._fits(fn, x, y):
            return Form(False)
        if id(fn.function) not in self._forms:
            self._forms[id(fn.function)] = self._found_out(fn, x, y)
        return self._forms[id(fn.function)]

    def _found_out(self, fn: Any, x: Tree, y: Tree) -> Form:
        """Whether a function splits, and whether its weights stay elsewhere."""
        try:
            split = Split(fn, self._rows, x, y)
            tied = split.tied(split.weights())
            other = Split(fn, self._rows, _apart(x, 1.0), _apart(y, 1.0))
        except NoSplitError:
            return Form(False)
        columns = zip(split.weights(), other.weights(), strict=True)
        stays = split.leaf is not None and not tied and all(torch.equal(a, b) for a, b in columns)
        stays = stays and split.width**2 <= split.rows.columns  # or weights would take memory
        # A product by the matrix reads that, and otherwise the rows.
        reads = base.size(y) ** 2
        is_less = reads <= MOST_VARIABLES**2 and reads <= 2 * _product(split.rows, split.width)
        return Form(True, stays and is_less, split.width)


def _product(rows: Rows, width: int) -> float:
    """What a product with second derivatives takes, in reads of one number of the rows."""
    if rows.sparse is not None:
        return 2 * rows.nonzeros * max(FOR_ONE, FOR_EACH * width)
    return 2 * rows.array.numel() * max(1.0, width / PER_READ)


def _apart(tree: Tree, far: float) -> Tree:
    return base.tree_map(lambda leaf: leaf + far * random_like(leaf), tree)


def _alike(a: tuple, b: tuple) -> bool:
    """Whether values and gradients are the same up to rounding."""
    first, second = ([torch.tensor(t[0]), *base.flatten(t[1:])[0]] for t in (a, b))
    return all(
        bool((p - q).abs().max() <= SAME * torch.finfo(second[-1].dtype).eps * p.abs().max())
        for p, q in zip(first, second, strict=True)
    )
