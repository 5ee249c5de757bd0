"""A dense model M of the inverse inner Hessian, and when it is worth making again.

M preconditions conjugate gradients, and replaces them where it is exact. preconditioner.py makes M
of a Hessian; this file decides at which points, and on which rows.

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

from untuned.ops import Ops, Tree
from untuned.problem.derivatives import Oracles
from untuned.solvers.numerics import preconditioner
from untuned.solvers.numerics.conjugate_gradient import Map

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
    matrix = preconditioner.identity(o, y)
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
        if not self._blocks and variables <= preconditioner.MOST_VARIABLES:
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
        return preconditioner.apply(self._o.ops, model.matrix)

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
            matrix = preconditioner.make(o, x, y, self._sample, model.matrix)
        else:
            floor = self._floor if model.source == ALL_ROWS else preconditioner.SAMPLED
            hessian = model.rest + o.hessian(x, y, self._sample, self._rows)
            matrix = preconditioner.inverted(o.ops, y, hessian, model.matrix, floor)
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
        matrix = preconditioner.inverted(o.ops, y, hessian, model.matrix, self._floor)
        return Model(matrix, rest, 0.0, 0.0, ALL_ROWS, corrections), True, price

    def _is_hessian(self, matrix: Any, x: Tree, y: Tree) -> bool:
        """Whether a product of the matrix is that of the Hessian on all rows, up to rounding."""
        ops = self._o.ops
        # In units of each variable, so that none is lost beside another.
        scale = ops.clip(abs(matrix.diagonal()), preconditioner.TINY[0], None) ** -0.5
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
