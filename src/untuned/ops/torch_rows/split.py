"""A function as F(y, z) with z = X q(y), and its Hessian from the weights of rows.

If F's second derivatives in z couple no two rows, as in a mean over rows,

    H  =  R  +  Q^T X^T W X Q  +  C  +  C^T

Q is the derivative of q. W is F_zz, a small block for each row. C = Q^T X^T F_zy is not zero for a
few entries of y (an intercept). R is the rest, which does not read the rows: F_yy and the curvature
of q. So a linear model's Hessian takes X^T (w X), and least squares keep that from one to the next.

Whether rows are coupled is tested each time by a product with random numbers: two different
matrices never have the same one by chance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch

from untuned.ops import Tree, eager
from untuned.ops.torch import gradients, tracked
from untuned.ops.torch_rows.products import Multiplying, random_like

ROUNDING = 100  # spacings of numbers, by which two products with one matrix may differ
FEW = 8  # entries of y for each number of z in a row that may meet z otherwise than in q


class NoSplitError(Exception):
    """The function is not of this form."""


class Split:
    """The second derivatives of a function in y, at a point; vectors have all entries of y."""

    def __init__(self, fn: Callable, rows_of: Callable, x: Tree, y: Tree):
        self._leaves, y = tracked(y)
        multiplying = Multiplying(rows_of, cuts=True)
        try:
            with torch.enable_grad(), multiplying:
                result = fn(x, y)
        except RuntimeError as error:  # not every function can be asked for this
            raise NoSplitError from error
        if len(multiplying.found) != 1 or not result.requires_grad:
            raise NoSplitError
        self.rows, self._q, self._z = multiplying.found[0]
        if not self._q.requires_grad:
            raise NoSplitError
        # Which of the leaves q is; often it is one, and then it is linear.
        self.leaf = next((k for k, leaf in enumerate(self._leaves) if leaf is self._q), None)
        self._grad_z, *self._grads = gradients(
            [result], [self._z, *self._leaves], create_graph=True
        )
        if self.leaf is None:
            slope = self.rows.back(self._grad_z.detach())
            with torch.enable_grad():
                bent = gradients([(slope * self._q).sum()], self._leaves, create_graph=True)
                self._grads = [a + b for a, b in zip(self._grads, bent, strict=True)]

    @property
    def width(self) -> int:
        """Numbers of z for each row."""
        return 1 if self._z.ndim == 1 else self._z.shape[1]

    def weights(self) -> Iterator[torch.Tensor]:
        """W, one column of its blocks after another: W e_b for each row."""
        z = self._z.detach()
        for unit in torch.eye(self.width, dtype=z.dtype):
            yield self._along_z(unit.expand(len(z), -1).reshape(z.shape))[0].reshape(len(z), -1)

    def tied(self, weights: Iterable[torch.Tensor]) -> list[int]:
        """The numbers of the entries of y that meet z otherwise than in q.

        It is no split if these are many, or if F ties rows to each other.
        """
        probe = self.rows.probe(self._z.detach())
        found, *in_y = self._along_z(probe)
        by_row = probe.reshape(len(probe), -1).split(1, 1)
        left, sizes = found.reshape(len(probe), -1), torch.zeros(())
        for column, numbers in zip(weights, by_row, strict=True):
            part = column * numbers
            left, sizes = left - part, sizes + part.abs()
        limit = ROUNDING * torch.finfo(left.dtype).eps * sizes.max()
        if not left.abs().max() <= limit:
            raise NoSplitError
        entries = _flat(in_y).nonzero()[:, 0].tolist()
        if len(entries) > FEW * self.width:
            raise NoSplitError
        return entries

    def weighted(self) -> torch.Tensor | None:
        """X^T W X in the order of q's entries; None where time was up before it was made."""
        count, width = self.rows.columns, self.width
        found = torch.empty(count, width, count, width, dtype=self._z.dtype)
        for b, column in enumerate(self.weights()):
            blocks = self.rows.weighted(column[:, b:])
            if blocks is None:
                return None
            for a, block in enumerate(blocks, b):
                found[:, a, :, b] = block
                found[:, b, :, a] = block
        return found.reshape(count * width, count * width)

    def _along_z(self, v: torch.Tensor) -> list[torch.Tensor]:
        return gradients([self._grad_z], [self._z, *self._leaves], [v], retain_graph=True)

    def rest(self, vector: torch.Tensor) -> torch.Tensor:
        """R v."""
        return _flat(gradients(self._grads, self._leaves, self._parts(vector), retain_graph=True))

    def hessian(self, matrix: torch.Tensor, tied: list[int]) -> torch.Tensor:
        """H, of X^T W X and the entries that meet z otherwise."""
        units = torch.eye(sum(leaf.numel() for leaf in self._leaves), dtype=matrix.dtype)
        spread = self._spread(units)
        if spread is not units:
            matrix = spread.t() @ matrix @ spread
        found = self._rest_as_matrix(units) + matrix
        for entry in tied:
            unit = self._parts(units[entry])
            (meets,) = gradients(self._grads, [self._z], unit, retain_graph=True)
            column = spread.t() @ self.rows.back(meets).reshape(-1)
            found[:, entry] += column
            found[entry] += column
        return found

    def by_matrix(self, matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
        """H v, where q is a leaf and no entry meets z otherwise."""
        found, part = self.rest(vector), self._own(vector)
        self._own(found).add_(matrix @ part)
        return found

    def _own(self, vector: torch.Tensor) -> torch.Tensor:
        """The entries of q."""
        if len(self._leaves) == 1:
            return vector
        start = sum(leaf.numel() for leaf in self._leaves[: self.leaf])
        return vector[start : start + self._q.numel()]

    def _rest_as_matrix(self, units: torch.Tensor) -> torch.Tensor:
        found = _diagonal(self.rest, units)
        return torch.stack(eager.columns(self.rest, units)) if found is None else found

    def _spread(self, units: torch.Tensor) -> torch.Tensor:
        """Q as a matrix of as many columns as y has entries."""
        if self.leaf is not None:
            return self._own(units)
        q = self._q

        def product(vector: torch.Tensor) -> torch.Tensor:
            """Q^T v."""
            v = [vector.reshape(q.shape)]
            return _flat(gradients([q], self._leaves, v, retain_graph=True))

        found = _diagonal(product, units) if q.numel() == len(units) else None
        own = torch.eye(q.numel(), dtype=units.dtype)
        return torch.stack(eager.columns(product, own)) if found is None else found

    def _parts(self, vector: torch.Tensor) -> list[torch.Tensor]:
        parts = vector.split([leaf.numel() for leaf in self._leaves])
        return [p.reshape(leaf.shape) for p, leaf in zip(parts, self._leaves, strict=True)]


def _diagonal(product: Callable, units: torch.Tensor) -> torch.Tensor | None:
    """The matrix of a map of vectors, if that is a diagonal, as random numbers tell."""
    diagonal, probe = product(torch.ones_like(units[0])), random_like(units[0])
    limit = ROUNDING * torch.finfo(units.dtype).eps * (diagonal * probe).abs()
    is_all = ((product(probe) - diagonal * probe).abs() <= limit).all()
    return torch.diag(diagonal) if is_all else None


def _flat(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([part.reshape(-1) for part in parts])
