"""A dense model of inner Hessians of few variables, by which systems are solved or conditioned.

    M = D Q |Lambda|^{-1} Q^T D   where Q Lambda Q^T = D (grad_yy g) D

and D scales to a unit diagonal. Where no eigenvalue is negative or next to nothing, the inverse in
the middle is made by Cholesky's factors, in a tenth of the time. Where g falls apart into functions
of some variables each, the Hessian is a stack of their blocks, and so is M; a function in closed
form may say so (`untuned.ops.ClosedForm`).

**On which rows.** On all of them M is the inverse itself, a step of Newton's method takes no
product and a system one or two, for as long as x and y stay near. On a few random rows (a sample)
M costs next to nothing and each system a handful of products: the mean over m rows differs from
that over all by about sqrt(dim / m). So between two Hessians on all rows the last one is corrected:
with H_S for that of the sample,

    H(x, y)  ~  H(x', y') + H_S(x, y) - H_S(x', y')

which is exact in penalties, as these are the same on any rows, and in the rest wrong by the same
share of the change alone.

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

from untuned.ops import Ops, Scalar, Tree
from untuned.problem.derivatives import Oracles
from untuned.solvers.numerics.conjugate_gradient import Map

MOST_VARIABLES = 1024  # whose matrix is 8 MB, in every checkpoint too
ROWS_PER_VARIABLE = 10
FEW_PRODUCTS = 10  # for which the first model is made on all rows at once
WORTH = 0.5  # of the price on all rows, that a correction may cost
EVALUATION = 0.5  # products: a model that costs less is made wherever x has moved
FEWER = 8  # times as many rows that there must be for a sample to be worth its while
SAMPLED = 1e-6  # of the largest eigenvalue: below, a sample says nothing
EXACT = 4  # roundings of the largest eigenvalue: below, rounding makes eigenvalues noise
OFF = 4.0
TINY = 1e-36, 1e-290  # of the largest diagonal entry: keeps the scaling finite, in each precision


def pilot_rows(variables: int, rows: int) -> int:
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
    return _inverted(o.ops, y, o.hessian(x, y, rows), otherwise, SAMPLED)


def _inverted(ops: Ops, y: Tree, hessian: Any, otherwise: Any, floor: Scalar) -> Any:
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

    # Traces bound the largest eigenvalue and the inverse of the smallest one from above.
    inverse = ops.inverse(scaled)
    spread = (_traces(scaled) * _traces(inverse)).max()
    inverse = ops.cond(spread * floor <= 1, lambda: inverse, decomposed)
    matrix = down / largest * inverse * across
    return ops.where((largest > 0) & ops.isfinite(ops.norm(matrix)), matrix, otherwise)


def _traces(matrices: Any) -> Any:
    return matrices.diagonal(0, -2, -1).sum(-1)


def apply(ops: Ops, matrix: Any) -> Map:
    """The map r -> M r of trees."""
    if matrix is None:
        return lambda r: r
    if matrix.ndim == 2:
        return lambda r: ops.unravel(matrix @ ops.ravel(r), r)
    blocks = matrix.shape[:2]
    return lambda r: ops.unravel((matrix @ ops.ravel(r).reshape(*blocks, 1)).reshape(-1), r)


class Model(NamedTuple):
    """M, and the products that a new one would have saved."""

    matrix: Any  # None where there are too many variables
    rest: Any  # what the last Hessian on all rows had beyond the sample's; None where there is none
    spent: Scalar  # since it was made
    owed: Scalar  # since the last one on all rows was made, with the price of samples
    whole: Scalar  # 1 if it is from all rows, 0 from a sample, -1 if there is none yet
    fit: Scalar  # 1 until a correction by the sample was far off


def start(o: Oracles, y: Tree) -> Model:
    """No model yet."""
    zero, matrix = o.ops.scalar(0.0, y), identity(o, y)
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
        if not self._blocks and variables <= MOST_VARIABLES:
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
        return apply(self._o.ops, model.matrix)

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
        sample_due = (model.spent >= self.sample_price) & ((model.whole < 1) | (model.fit == 1))
        if self._quick:  # the first one at once
            none_yet = model.whole < 0
            if math.isinf(self.sample_price) or self.price <= FEW_PRODUCTS:
                due = due | none_yet
            else:
                sample_due = sample_due | none_yet
        sample_due = sample_due & ops.logical_not(due)
        matrix, rest, whole, owed = model.matrix, model.rest, model.whole, model.owed
        price = none
        if not math.isinf(self.sample_price):
            matrix = ops.cond(sample_due, lambda: self._from_sample(model, x, y), lambda: matrix)
            owed = ops.where(sample_due, owed + self.sample_price, owed)
            whole = ops.where(sample_due & (whole < 0), none, whole)
            price = ops.where(sample_due, none + round(self.sample_price), none)
        if not math.isinf(self.price):
            so_far = matrix, rest
            matrix, rest = ops.cond(due, lambda: self._from_all(model, x, y), lambda: so_far)
            whole = ops.where(due, none + 1, whole)
            owed = ops.where(due, zero, owed)
            price = ops.where(due, none + round(self.price), price)
        due = due | sample_due
        spent = ops.where(due, zero, model.spent)
        return Model(matrix, rest, spent, owed, whole, model.fit), due, price

    def _from_sample(self, model: Model, x: Tree, y: Tree) -> Any:
        o = self._o
        if self._blocks:
            return make(o, x, y, self._sample, model.matrix)
        floor = o.ops.where(model.whole == 1, self._floor, SAMPLED)
        hessian = model.rest + o.hessian(x, y, self._sample, self._rows)
        return _inverted(o.ops, y, hessian, model.matrix, floor)

    def _from_all(self, model: Model, x: Tree, y: Tree) -> tuple[Any, Any]:
        o = self._o
        hessian, rest = o.hessian(x, y, self._rows), model.rest
        if not math.isinf(self.sample_price):
            rest = hessian - o.hessian(x, y, self._sample, self._rows)
        return _inverted(o.ops, y, hessian, model.matrix, self._floor), rest

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
        stale = ops.logical_not(fresh) & (fit == 1) & math.isfinite(self.sample_price)
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
