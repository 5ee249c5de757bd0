"""A dense model M of the inverse inner Hessian, and when it is worth making again.

M preconditions conjugate gradients, and replaces them where it is exact.

    M = D Q |Lambda|^{-1} Q^T D   where Q Lambda Q^T = D (grad_yy g) D

and D scales to a unit diagonal. Where no eigenvalue is negative or next to nothing, the inverse in
the middle is made by Cholesky's factors, in a tenth of the time. Where g falls apart into functions
of some variables each, the Hessian is a stack of their blocks, and so is M, or one block that
stands for all; a function in closed form may say so (`untuned.ops.ClosedForm`).

**Rows.** M from all rows is the inverse itself: a Newton step takes no product, and a linear system
one or two, while x and y stay near. M from a sample of rows costs next to nothing, and each system
takes a handful of products, since the mean over m rows differs from the mean over all by about
sqrt(dim / m). Between two Hessians from all rows, at (x', y') and later, the sample's Hessian H_S
corrects the last one:

    H(x, y)  ~  H(x', y') + H_S(x, y) - H_S(x', y')

This is exact in penalties, which do not depend on rows, and its error in the rest is a share of the
change alone. In least squares only penalties change. So before a Hessian is made from all rows, one
product with random numbers checks whether the corrected one is exact already; where the check fails
once, it is not repeated.

**When.** Products are counted. A Hessian from all rows has a price in products
(`Ops.hessian_price`, plus the inversion). It is made once the products that it would have saved add
up to its price, so M costs at most twice what the best moment to make it would have cost. The same
rule holds for a correction by the sample. A new M would have saved every product of a system after
the first, and half a product (one evaluation) for every Newton step without products after the
first. M is also made again when conjugate gradients find that the energy of an error, by which y
and v are accepted, differs by more than a factor of four from what M makes of it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from untuned.ops import Ops, Scalar, Tree
from untuned.problem.derivatives import Oracles
from untuned.solvers.numerics.conjugate_gradient import Map

MOST_VARIABLES = 1024  # whose matrix is 8 MB, in every checkpoint too
ROWS_PER_VARIABLE = 10
FEWER = 8  # times as many rows that there must be for a sample to be worth its while
SAMPLED = 1e-6  # of the largest eigenvalue: below, a sample says nothing
TINY = 1e-36, 1e-290  # of the largest diagonal entry: keeps the scaling finite, in each precision
FEW_PRODUCTS = 10  # price up to which the first model is made from all rows at once
WORTH = 0.5  # largest share of the full price that a correction may cost
EVALUATION = 0.5  # products: a cheaper model is made again wherever x has moved
SAME = 100  # roundings by which two products with one matrix may differ
EXACT = 4  # roundings of the largest eigenvalue: smaller eigenvalues are noise
OFF = 4.0  # factor between two energies above which the model is wrong

NONE_YET, SAMPLE, ALL_ROWS = -1, 0, 1  # where the matrix comes from
EXACT_SO_FAR, INEXACT, REFUSED = 1, 2, 0  # what is known of corrections by the sample


class Model(NamedTuple):
    """M, and the products that a newer one would have saved."""

    matrix: Any  # None where y has too many entries
    rest: Any  # the last Hessian from all rows less the sample's; None without a matrix
    spent: float  # products since M was made
    owed: float  # products since M was made from all rows, with the price of corrections
    source: int
    corrections: int


def start(o: Oracles, y: Tree) -> Model:
    """No model yet."""
    matrix = identity(o, y)
    rest = 0 * matrix if matrix is not None and matrix.ndim == 2 else None
    return Model(matrix, rest, 0.0, 0.0, NONE_YET, EXACT_SO_FAR)


class Renewal:
    """Makes a model again when counted products show that it pays.

    `most` bounds the conjugate-gradient steps of one system.
    """

    def __init__(self, o: Oracles, x: Tree, y: Tree, rows: Tree, sample: Tree, most: int):
        blocks, variables, share = o.hessian_blocks(y)
        self._o, self._rows, self._sample, self._most = o, rows, sample, most
        self._blocks = blocks is not None
        self._floor = EXACT * o.ops.epsilon(y)
        self.price, self._quick, inversion = math.inf, self._blocks, 0.0
        if not self._blocks and variables <= MOST_VARIABLES:
            price, inversion = o.hessian_price(x, y, rows), _inversion(o.ops, rows, variables)
            self._quick = price < variables and inversion <= max(price, 1)
            self.price = price + inversion
        self.sample_price = math.inf
        if self._blocks:  # in closed form, from rows that the function chooses
            self.sample_price = max(1, round(variables * share))
        elif sample is not None:
            share = _count(o.ops, sample) / _count(o.ops, rows)
            price = share * (self.price - inversion) + inversion
            self.sample_price = price if price <= WORTH * self.price else math.inf

    def multiply(self, model: Model) -> Map:
        """The map r -> M r."""
        return apply(self._o.ops, model.matrix)

    def after_move(self, model: Model) -> Model:
        """The model after a step of x: due at once where trying it costs more than a new one."""
        if model.matrix is None or self.price > EVALUATION:
            return model
        return model._replace(owed=max(model.owed, self.price))

    def renewed(self, model: Model, x: Tree, y: Tree) -> tuple[Model, bool, int]:
        """The model, made again at (x, y) if that is due; whether it was; the products it took."""
        if model.matrix is None:
            return model, False, 0
        at_once = self._quick and model.source == NONE_YET
        from_all = math.isinf(self.sample_price) or self.price <= FEW_PRODUCTS
        if math.isfinite(self.price) and (model.owed >= self.price or (at_once and from_all)):
            return self._from_all(model, x, y)
        pays = model.spent >= self.sample_price
        pays = pays and (model.source != ALL_ROWS or model.corrections != REFUSED)
        if math.isfinite(self.sample_price) and (pays or (at_once and not from_all)):
            return self._from_sample(model, x, y)
        return model, False, 0

    def _from_sample(self, model: Model, x: Tree, y: Tree) -> tuple[Model, bool, int]:
        o = self._o
        if self._blocks:
            matrix = make(o, x, y, self._sample, model.matrix)
        else:
            floor = self._floor if model.source == ALL_ROWS else SAMPLED
            hessian = model.rest + o.hessian(x, y, self._sample, self._rows)
            matrix = inverted(o.ops, y, hessian, model.matrix, floor)
        source, owed = max(model.source, SAMPLE), model.owed + self.sample_price
        new = model._replace(matrix=matrix, spent=0.0, owed=owed, source=source)
        return new, True, round(self.sample_price)

    def _from_all(self, model: Model, x: Tree, y: Tree) -> tuple[Model, bool, int]:
        o, price, rest, corrections = self._o, round(self.price), model.rest, model.corrections
        if math.isinf(self.sample_price):
            hessian = o.hessian(x, y, self._rows)
        else:
            sample = o.hessian(x, y, self._sample, self._rows)
            hessian = rest + sample
            asked = model.source == ALL_ROWS and corrections == EXACT_SO_FAR
            if asked and self._is_hessian(hessian, x, y):
                price = 1 + round(self.sample_price)
            else:
                hessian = o.hessian(x, y, self._rows)
                rest = hessian - sample
                corrections = INEXACT if asked else corrections
        matrix = inverted(o.ops, y, hessian, model.matrix, self._floor)
        return Model(matrix, rest, 0.0, 0.0, ALL_ROWS, corrections), True, price

    def _is_hessian(self, matrix: Any, x: Tree, y: Tree) -> bool:
        """Whether a product of the matrix is that of the Hessian on all rows, up to rounding."""
        ops = self._o.ops
        # In units of each variable, so that none is lost beside another.
        scale = ops.clip(abs(matrix.diagonal()), TINY[0], None) ** -0.5
        vector = scale * ops.array(np.random.default_rng(0).standard_normal(len(scale)), y)
        product = matrix @ vector
        exact = ops.ravel(self._o.linear(x, y, self._rows).hvp(ops.unravel(vector, y)))
        left, whole = ops.norm(scale * (exact - product)), ops.norm(scale * product)
        return bool(left <= SAME * ops.epsilon(y) * whole)

    def most(self, model: Model) -> float:
        """Conjugate-gradient steps after which a new model is cheaper than to go on."""
        if model.matrix is None or self._blocks:
            return self._most
        return max(1 + self.price - model.owed, 2.0)

    def charged(self, model: Model, steps: int, evaluations: int) -> Model:
        """The model after a system that took so many products, and evaluations without them."""
        if model.matrix is None:
            return model
        waste = steps if self._blocks else max(steps - 1, 0) + EVALUATION * evaluations
        return model._replace(spent=model.spent + waste, owed=model.owed + waste)

    def checked(self, model: Model, seen: float, found: float, fresh: bool) -> tuple[Model, bool]:
        """The model after it has `seen` an energy that products have `found`; whether it is off.

        One that is off is corrected by the sample, or made again from all rows where it was fresh
        from the sample: where eigenvalues are small, a sample's noise outweighs them.
        """
        if model.source != ALL_ROWS or self._blocks:
            return model, False
        if not (seen > OFF * found or found > OFF * seen):
            return model, False
        # One that is fresh from all rows owes only what was spent since.
        if fresh and model.owed > model.spent:
            model = model._replace(corrections=REFUSED)
        if not fresh and model.corrections != REFUSED and math.isfinite(self.sample_price):
            return model._replace(spent=max(model.spent, self.sample_price)), True
        return model._replace(owed=max(model.owed, self.price)), True


def _inversion(ops: Ops, rows: Tree, variables: int) -> float:
    """The price of inverting a matrix, in products with these rows.

    About n^3 operations, against four for every number of the rows; a product waits for memory,
    which makes each of its operations take some five times as long.
    """
    numbers = sum(leaf.nbytes for leaf in ops.flatten(rows)[0]) / 8
    return variables**3 / (20 * numbers) if numbers else 0.0


def _count(ops: Ops, rows: Tree) -> int:
    return 1 if rows is None else ops.flatten(rows)[0][0].shape[0]


def sample_size(variables: int, rows: int) -> int:
    """How many rows a sample has: its products cost about one on all rows. 0: no samples."""
    if variables > MOST_VARIABLES:
        return 0
    count = max(ROWS_PER_VARIABLE * variables, rows // variables)
    return count if FEWER * count <= rows else 0


def identity(o: Oracles, y: Tree) -> Any:
    """The preconditioner that changes nothing; None where there are too many variables."""
    ops = o.ops
    blocks, variables, _ = o.hessian_blocks(y)
    if variables > MOST_VARIABLES:
        return None
    unit = ops.matrix(lambda unit: unit, variables, y)
    return unit if blocks is None else ops.stack(unit, blocks)


def make(o: Oracles, x: Tree, y: Tree, rows: Tree, otherwise: Any) -> Any:
    """M at (x, y), as a matrix; `otherwise` where the Hessian is zero or not finite."""
    return inverted(o.ops, y, o.hessian(x, y, rows), otherwise, SAMPLED)


def inverted(ops: Ops, y: Tree, hessian: Any, otherwise: Any, floor: Scalar) -> Any:
    """M of a Hessian; eigenvalues below `floor` of the largest count as that."""
    # Divided by its largest entry, so that no power of two in g changes a bit of what follows; then
    # scaled to a unit diagonal, as a penalty may make one variable's curvature dwarf all others.
    largest = abs(hessian.diagonal(0, -2, -1)).max()
    relative = hessian / ops.where(largest > 0, largest, ops.array(1.0, y))
    tiny = TINY[ops.epsilon(y) < 1e-10]
    scale = ops.clip(abs(relative.diagonal(0, -2, -1)), tiny, None) ** -0.5
    across, down = scale[..., None, :], scale[..., :, None]
    scaled = 0.5 * down * (relative + relative.mT) * across

    def decomposed() -> Any:
        values, vectors = ops.eigh(scaled)
        sizes = abs(values)
        return (vectors / ops.clip(sizes, floor * sizes.max(), None)[..., None, :]) @ vectors.mT

    # Norms bound the largest eigenvalue and the inverse of the smallest one from above.
    inverse = ops.inverse(scaled)
    spread = (_norms(scaled) * _norms(inverse)).max()
    inverse = ops.cond(spread * floor <= 1, lambda: inverse, decomposed)
    matrix = down / largest * inverse * across
    return ops.where((largest > 0) & ops.isfinite(ops.norm(matrix)), matrix, otherwise)


def _norms(matrices: Any) -> Any:
    """Frobenius', which of many variables are far below the traces."""
    return (matrices**2).sum(-1).sum(-1) ** 0.5


def apply(ops: Ops, matrix: Any) -> Map:
    """The map r -> M r of trees."""
    if matrix is None:
        return lambda r: r
    if matrix.ndim == 2:
        return lambda r: ops.unravel(matrix @ ops.ravel(r), r)
    blocks, _, size = matrix.shape

    def multiplied(r: Tree) -> Tree:
        # (blocks, of each, entries): one block may stand for several.
        parts = ops.ravel(r).reshape(blocks, -1, size)
        return ops.unravel((parts @ matrix.mT).reshape(-1), r)

    return multiplied
