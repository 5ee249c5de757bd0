"""When the model of the inner Hessian is made anew, and on which rows.

**On which rows.** On all of them M is the inverse itself, a step of Newton's method takes no
product and a system one or two, for as long as x and y stay near. On a few random rows (a sample)
M costs next to nothing and each system a handful of products: the mean over m rows differs from
that over all by about sqrt(dim / m). So between two Hessians on all rows the last one is corrected:
with H_S for that of the sample,

    H(x, y)  ~  H(x', y') + H_S(x, y) - H_S(x', y')

which is exact in penalties, as these are the same on any rows, and in the rest wrong by the same
share of the change alone. In least squares nothing but penalties changes. So before another Hessian
is made on all rows, one product with random numbers asks whether the corrected one is that already;
where it once was not, this is not asked again.

**When.** By counting products. One on all rows has a price in them (`Ops.hessian_price`, and what
the inverse takes), and is made once those that it would have saved add up to it, so M never costs
more than twice what the best moment to make it would have; a correction likewise. What would have
been saved is every product of a system after its first, and half of one, an evaluation, for every
step of Newton's method without products after its first. An M also goes when conjugate gradients
find an error's energy, by which y and v are judged, beyond a factor of four of what M makes of it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from untuned.ops import Ops, Scalar, Tree
from untuned.problem.derivatives import Oracles
from untuned.solvers.numerics import preconditioner
from untuned.solvers.numerics.conjugate_gradient import Map

FEW_PRODUCTS = 10  # for which the first model is made on all rows at once
WORTH = 0.5  # of the price on all rows, that a correction may cost
EVALUATION = 0.5  # products: a model that costs less is made wherever x has moved
SAME = 100  # roundings by which two products with one matrix may differ
EXACT = 4  # roundings of the largest eigenvalue: below, rounding makes eigenvalues noise
OFF = 4.0


class Model(NamedTuple):
    """M, and the products that a new one would have saved."""

    matrix: Any  # None where there are too many variables
    rest: Any  # what the last Hessian on all rows had beyond the sample's; None where there is none
    spent: Scalar  # since it was made
    owed: Scalar  # since the last one on all rows was made, with the price of samples
    whole: Scalar  # 1 if it is from all rows, 0 from a sample, -1 if there is none yet
    fit: Scalar  # of corrections by the sample: 1 may be exact, 2 are not, 0 were far off


def start(o: Oracles, y: Tree) -> Model:
    """No model yet."""
    zero, matrix = o.ops.scalar(0.0, y), preconditioner.identity(o, y)
    is_one = matrix is not None and matrix.ndim == 2
    rest, one = 0 * matrix if is_one else None, o.ops.counter(1)
    return Model(matrix, rest, zero, zero, o.ops.counter(-1), one)


def on_new_rows(ops: Ops, model: Model) -> Model:
    """The model for other rows, of which those it was made on are a sample."""
    if model.rest is None:
        return model
    whole = ops.where(model.whole == 1, ops.counter(0), model.whole)
    return model._replace(rest=0 * model.rest, whole=whole, fit=ops.counter(1))


class Keeper:
    """Makes a model anew when products show that it pays."""

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
        if self._blocks:  # in closed form, from rows of its own choice
            self.sample_price = max(1, round(variables * share))
        elif sample is not None:
            share = _count(o.ops, sample) / _count(o.ops, rows)
            price = share * (self.price - inversion) + inversion
            self.sample_price = price if price <= WORTH * self.price else math.inf

    def multiply(self, model: Model) -> Map:
        """The map r -> M r."""
        return preconditioner.apply(self._o.ops, model.matrix)

    def moved(self, model: Model) -> Model:
        """After a step of x: a model is out of date if to try it costs more than a new one."""
        if model.matrix is None or self.price > EVALUATION:
            return model
        return model._replace(owed=self._o.ops.maximum(model.owed, self.price))

    def renewed(self, model: Model, x: Tree, y: Tree) -> tuple[Model, Scalar, Scalar]:
        """The model, made anew at (x, y) if that is due; whether it was, and its price."""
        ops, none = self._o.ops, self._o.ops.counter(0)
        if model.matrix is None:
            return model, none, none
        zero = ops.scalar(0.0, y)
        due = model.owed >= self.price
        sample_due = (model.spent >= self.sample_price) & ((model.whole < 1) | (model.fit > 0))
        if self._quick:  # the first one at once
            none_yet = model.whole < 0
            if math.isinf(self.sample_price) or self.price <= FEW_PRODUCTS:
                due = due | none_yet
            else:
                sample_due = sample_due | none_yet
        sample_due = sample_due & ops.logical_not(due)
        matrix, rest, _, owed, whole, fit = model
        price = none
        if not math.isinf(self.sample_price):
            matrix = ops.cond(sample_due, lambda: self._from_sample(model, x, y), lambda: matrix)
            owed = ops.where(sample_due, owed + self.sample_price, owed)
            whole = ops.where(sample_due & (whole < 0), none, whole)
            price = ops.where(sample_due, none + round(self.sample_price), none)
        if not math.isinf(self.price):
            so_far = matrix, rest, fit, price
            matrix, rest, fit, price = ops.cond(
                due, lambda: self._from_all(model, x, y), lambda: so_far
            )
            whole = ops.where(due, none + 1, whole)
            owed = ops.where(due, zero, owed)
        due = due | sample_due
        spent = ops.where(due, zero, model.spent)
        return Model(matrix, rest, spent, owed, whole, fit), due, price

    def _from_sample(self, model: Model, x: Tree, y: Tree) -> Any:
        o = self._o
        if self._blocks:
            return preconditioner.make(o, x, y, self._sample, model.matrix)
        floor = o.ops.where(model.whole == 1, self._floor, preconditioner.SAMPLED)
        hessian = model.rest + o.hessian(x, y, self._sample, self._rows)
        return preconditioner.inverted(o.ops, y, hessian, model.matrix, floor)

    def _from_all(self, model: Model, x: Tree, y: Tree) -> tuple[Any, Any, Scalar, Scalar]:
        """M, what its Hessian has beyond the sample's, whether that is fit, and the price."""
        o, ops, price = self._o, self._o.ops, self._o.ops.counter(round(self.price))
        if math.isinf(self.sample_price):
            hessian = o.hessian(x, y, self._rows)
            return self._exactly(model, y, hessian), model.rest, model.fit, price
        sample = o.hessian(x, y, self._sample, self._rows)
        corrected = model.rest + sample
        asked = (model.whole == 1) & (model.fit == 1)
        stays = ops.cond(
            asked, lambda: self._is_hessian(corrected, x, y), lambda: ops.scalar(0.0, y) > 0
        )
        hessian = ops.cond(stays, lambda: corrected, lambda: o.hessian(x, y, self._rows))
        rest = ops.where(stays, model.rest, hessian - sample)
        fit = ops.where(asked & ops.logical_not(stays), ops.counter(2), model.fit)
        price = ops.where(stays, ops.counter(1 + round(self.sample_price)), price)
        return self._exactly(model, y, hessian), rest, fit, price

    def _exactly(self, model: Model, y: Tree, hessian: Any) -> Any:
        """M of a Hessian that is not a sample's."""
        return preconditioner.inverted(self._o.ops, y, hessian, model.matrix, self._floor)

    def _is_hessian(self, matrix: Any, x: Tree, y: Tree) -> Scalar:
        """Whether a product of the matrix is that of the Hessian on all rows, up to rounding."""
        ops = self._o.ops
        # In units of each variable, so that none is lost beside another.
        scale = ops.clip(abs(matrix.diagonal()), preconditioner.TINY[0], None) ** -0.5
        vector = scale * ops.array(np.random.default_rng(0).standard_normal(len(scale)), y)
        product = matrix @ vector
        truly = ops.ravel(self._o.linear(x, y, self._rows).hvp(ops.unravel(vector, y)))
        left, whole = ops.norm(scale * (truly - product)), ops.norm(scale * product)
        return left <= SAME * ops.epsilon(y) * whole

    def most(self, model: Model) -> Scalar:
        """Steps of conjugate gradients after which a new model is cheaper than to go on."""
        if model.matrix is None or self._blocks:
            return self._most
        left = 1 + self.price - model.owed
        return self._o.ops.where(left > 2, left, 2.0)

    def charged(self, model: Model, steps: Scalar, evaluations: Scalar) -> Model:
        """After a system of so many products and so many evaluations beside them."""
        if model.matrix is None:
            return model
        ops = self._o.ops
        waste = steps if self._blocks else ops.where(steps > 1, steps - 1, 0) + 0.5 * evaluations
        return model._replace(spent=model.spent + waste, owed=model.owed + waste)

    def judged(
        self, model: Model, seen: Scalar, found: Scalar, fresh: Scalar
    ) -> tuple[Model, Scalar]:
        """After an energy that M has seen and products have found; whether M is far off.

        It goes then; by way of the sample, unless it is fresh from there: where eigenvalues are
        small, noise of a sample outweighs them, and it is not asked again.
        """
        if model.matrix is None or self._blocks:
            return model, False
        ops = self._o.ops
        off = (model.whole == 1) & ((seen > OFF * found) | (found > OFF * seen))
        # One that is fresh from all rows has nothing owed but what was spent since.
        corrected = fresh & (model.owed > model.spent)
        fit = ops.where(off & corrected, ops.counter(0), model.fit)
        stale = ops.logical_not(fresh) & (fit > 0) & math.isfinite(self.sample_price)
        due = ops.maximum(model.owed, self.price), ops.maximum(model.spent, self.sample_price)
        owed = ops.where(off & ops.logical_not(stale), due[0], model.owed)
        spent = ops.where(off & stale, due[1], model.spent)
        return model._replace(owed=owed, spent=spent, fit=fit), off


class Fixed:
    """A keeper of a map that stays what it is."""

    def __init__(self, precondition: Map, most: int):
        self._precondition, self._most = precondition, most

    def multiply(self, model: Model) -> Map:
        """The map given."""
        return self._precondition

    def moved(self, model: Model) -> Model:
        """The same."""
        return model

    def renewed(self, model: Model, x: Tree, y: Tree) -> tuple[Model, Scalar, Scalar]:
        """The same."""
        return model, model.whole, model.whole

    def most(self, model: Model) -> Scalar:
        """The number given."""
        return self._most

    def charged(self, model: Model, steps: Scalar, evaluations: Scalar) -> Model:
        """The same."""
        return model

    def judged(
        self, model: Model, seen: Scalar, found: Scalar, fresh: Scalar
    ) -> tuple[Model, Scalar]:
        """The same, never off."""
        return model, False


def _inversion(ops: Ops, rows: Tree, variables: int) -> float:
    """What it takes to invert a matrix, in products with these rows.

    About n^3 operations, against four for every number of the rows; and those of a product wait
    for memory, which makes each of them take some five times as long.
    """
    numbers = sum(leaf.nbytes for leaf in ops.flatten(rows)[0]) / 8
    return variables**3 / (20 * numbers) if numbers else 0.0


def _count(ops: Ops, rows: Tree) -> int:
    return 1 if rows is None else ops.flatten(rows)[0][0].shape[0]
