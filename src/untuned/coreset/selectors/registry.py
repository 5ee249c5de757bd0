"""`select`: one interface to all selectors."""

from __future__ import annotations

import importlib
import inspect
import numbers
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from untuned.coreset.baselines import in_turns
from untuned.coreset.selectors.candidates import (
    Candidates,
    as_numpy,
    evaluating,
    outputs,
    require_finite,
)
from untuned.coreset.selectors.sampling import drawn
from untuned.coreset.selectors.slots import pick
from untuned.util.wording import NO_TORCH, brief, unknown

# name -> "module:function"; modules are imported when a selector is asked for.
SELECTORS = {
    "auto": "untuned.coreset.selectors.prototypes:auto",
    "bcsr": "untuned.coreset.selectors.simplex:bcsr",
    "d-tfbo": "untuned.coreset.selectors.simplex:d_tfbo",
    "gcr": "untuned.coreset.selectors.matching:gcr",
    "grad-matching": "untuned.coreset.selectors.matching:grad_matching",
    "greedy-coreset": "untuned.coreset.selectors.kernel_greedy:greedy_coreset",
    "icarl": "untuned.coreset.selectors.matching:icarl",
    "k-means-embedding": "untuned.coreset.selectors.sampling:k_means_embedding",
    "k-means-features": "untuned.coreset.selectors.sampling:k_means_features",
    "pbcs": "untuned.coreset.selectors.pbcs:pbcs",
    "s-tfbo": "untuned.coreset.selectors.simplex:s_tfbo",
    "uniform": "untuned.coreset.selectors.sampling:uniform",
}

# Those that give a weight to every row, by which rows are then drawn.
ON_SIMPLEX = ("bcsr", "d-tfbo", "s-tfbo")


class Selection(NamedTuple):
    """Row numbers, the most important first, and a weight in [0, 1] for each of them."""

    indices: np.ndarray
    weights: np.ndarray


def names() -> list[str]:
    """The names of all selectors."""
    return sorted(SELECTORS)


def select(
    model: Any, X: Any, y: Any, size: int, *, method: str = "auto", classes: Any = None,
    every_class: bool = True, weights: Any = None, balance: str | None = None, seed: Any = 0,
    **options: Any,
) -> Selection:  # fmt: skip
    """Choose `size` of the rows of X, whose labels are y.

    Parameters
    ----------
    model : a torch module that ends with a linear layer, whose output is one logit per class; or
        None where the rows of X are features already.
    X : the rows, as the model takes them; y : labels, whole numbers: columns of the model's output.
    size : how many rows to choose.
    method : a name of `untuned.coreset.names()`.
    classes : the outputs that take part, others being masked; None for all of the model's, or
        for those of y without a model.
    every_class : whether each class must have a candidate; only checked where `classes` are given.
    weights : how much each candidate counts; None for equally.
    balance : "class" to take an equal number of each class, in the order of the method; or None.
    seed : of everything random; a number or a NumPy generator.
    options : of the method: `proxy` ("head" or "full"), `start`, `steps`, ... (docs/continual.md).

    Returns
    -------
    Selection : `indices`, the most important first, and `weights` in [0, 1], one per index.

    Example
    -------
    >>> import numpy as np
    >>> from untuned import coreset
    >>> X = np.repeat(np.eye(3), 10, axis=0)
    >>> y = np.repeat([0, 1, 2], 10)
    >>> sorted(y[coreset.select(None, X, y, 3).indices].tolist())
    [0, 1, 2]
    """
    candidates = checked(model, X, y, classes, every_class, weights, seed)
    return select_among(candidates, size, method, balance, options)[0]


def select_among(
    c: Candidates, size: int, method: str, balance: str | None, options: dict[str, Any]
) -> tuple[Selection, np.ndarray | None]:
    """`select`, and the lambda that rows were drawn by where the method is on the simplex."""
    if method not in SELECTORS:
        raise unknown("selector", method, SELECTORS)
    if balance not in (None, "class"):
        raise ValueError(f"balance={brief(balance)} is not usable; expected 'class' or None.")
    size = _checked_size(size, len(c))
    found = _found(c, size, method, options)
    on_simplex = method in ON_SIMPLEX
    chosen = _picked(found, c, size, balance) if on_simplex else found
    if balance:
        chosen = _equal_parts(c, size, *chosen)
    return Selection(*chosen), found.weights if on_simplex else None


def distribution(
    model: Any, X: Any, y: Any, size: int, *, method: str, classes: Any = None,
    every_class: bool = True, weights: Any = None, seed: Any = 0, **options: Any,
) -> np.ndarray:  # fmt: skip
    """The weights lambda of *all* rows by which "bcsr", "s-tfbo" or "d-tfbo" would draw.

    Parameters as those of `select`; the entries are nonnegative and sum to one.
    """
    if method not in ON_SIMPLEX:
        raise unknown("selector on the simplex", method, ON_SIMPLEX)
    candidates = checked(model, X, y, classes, every_class, weights, seed)
    return _found(candidates, _checked_size(size, len(candidates)), method, options).weights


def _picked(found: Any, c: Candidates, size: int, balance: str | None) -> Any:
    """Rows by lambda: those of its slots, or a draw."""
    if found.slots is not None:
        return pick(found.slots, found.weights)
    # A class may need rows that come late in the order.
    return drawn(found.weights, c, len(c) if balance else size)


def _found(c: Candidates, size: int, method: str, options: dict[str, Any]) -> Any:
    """What a selector gives: rows and weights, or lambda where it is on the simplex."""
    try:
        selector = _selector(method, options)
        with evaluating(c.model) if c.model is not None else nullcontext():
            return selector(c, size, **options)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(f"method={method!r} {NO_TORCH}", name="torch") from None


def _equal_parts(
    c: Candidates, size: int, indices: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same number of each class in the order given; rows that were left out fill up."""
    rest = c.rng.permutation(np.setdiff1d(np.arange(len(c)), indices))
    ranked = np.concatenate([indices, rest])
    weight = np.zeros(len(c))
    weight[indices] = weights
    orders = [ranked[c.label[ranked] == place] for place in np.unique(c.label)]
    chosen = in_turns(orders, size)
    # Those that only fill up weigh as little as the lightest chosen one.
    lightest = weights[weights > 0].min()
    return chosen, np.where(weight[chosen] > 0, weight[chosen], lightest)


def checked(
    model: Any, X: Any, y: Any, classes: Any, every_class: bool, weights: Any, seed: Any
) -> Candidates:
    """Candidates from what a user gives, or a sentence that says what is wrong with it."""
    if hasattr(X, "toarray"):
        raise ValueError(
            f"The rows are SciPy's {type(X).__name__}; expected an array, so give its .toarray()."
        )
    X, y = as_numpy(X), as_numpy(y)
    if y.ndim != 1 or y.dtype.kind not in "iu":
        raise ValueError(
            f"The labels are {brief(y.dtype.name)} of shape {y.shape}; expected one whole number "
            "per row, the column of the model's output, or what np.unique(y, "
            "return_inverse=True)[1] gives where there is no model."
        )
    if X.ndim == 0:
        raise ValueError(f"The rows are {brief(X[()])}; expected an array of numbers.")
    if len(X) != len(y):
        raise ValueError(
            f"There are {len(X)} rows and {len(y)} labels; expected the same number of both."
        )
    if len(y) == 0:
        raise ValueError("The task is empty: there is no row to choose from; give at least one.")
    if X.dtype.kind not in "biuf":
        raise ValueError(f"The rows hold {brief(X.dtype.name)}; expected numbers.")
    require_finite(X, "The inputs")
    if classes is None:
        classes = np.unique(y) if model is None else np.arange(_outputs(model, y))
        every_class = False
    classes = np.asarray(classes)
    if model is not None and len(classes):
        count = _outputs(model, y)
        if classes.max() >= count or classes.min() < 0:
            raise ValueError(
                f"classes={brief(classes.tolist())} has one outside the model's {count} "
                f"outputs; expected numbers from 0 to {count - 1}."
            )
    outside = np.setdiff1d(y, classes)
    if len(outside):
        raise ValueError(
            f"The label {outside[0]} is outside the head, whose classes are "
            f"{brief(classes.tolist())}; give a larger head, or other rows."
        )
    missing = np.setdiff1d(classes, y)
    if every_class and len(missing):
        raise ValueError(
            f"The class {missing[0]} has no candidate among the {len(y)} rows; give some, or "
            "leave the class out."
        )
    order = np.argsort(classes)
    label = order[np.searchsorted(classes, y, sorter=order)]
    return Candidates(X, label, classes, _shares(weights, len(y)), model, _generator(seed))


def _outputs(model: Any, y: np.ndarray) -> int:
    """As many as the last layer has; a model without one is taken to know its labels."""
    from torch import nn

    if not isinstance(model, nn.Module):
        raise ValueError(
            f"The model is a {type(model).__name__}; expected a torch.nn.Module, or None where "
            "the rows are features already."
        )
    has_layer = any(isinstance(part, nn.Linear) for part in model.modules())
    return outputs(model) if has_layer else int(y.max()) + 1


def _shares(weights: Any, rows: int) -> np.ndarray:
    if weights is None:
        return np.full(rows, 1 / rows)
    weights = np.asarray(as_numpy(weights), float)
    if weights.shape != (rows,):
        raise ValueError(
            f"The weights have shape {weights.shape}; expected one for each of the {rows} rows."
        )
    if not np.isfinite(weights).all() or weights.min() < 0:
        raise ValueError(
            "A weight is negative or not finite; expected numbers from 0 up, one per row."
        )
    if not weights.any():
        raise ValueError("The weights are all zero; give some row a weight above zero.")
    return weights / weights.sum()


def _checked_size(size: Any, rows: int) -> int:
    is_whole = isinstance(size, numbers.Integral) and not isinstance(size, bool | np.bool_)
    if not is_whole or size < 1:
        raise ValueError(
            f"size={brief(size)} is not usable; expected a whole number of rows from 1 up."
        )
    if size > rows:
        raise ValueError(
            f"size={brief(size)} is above the {rows} candidates; expected at most as many."
        )
    return int(size)


def _selector(method: str, options: dict[str, Any]) -> Any:
    """The function of a selector, once the names of its options are checked."""
    path, _, attribute = SELECTORS[method].partition(":")
    module = importlib.import_module(path)
    selector = getattr(module, attribute)
    parameters = list(inspect.signature(selector).parameters.values())
    if any(one.kind is one.VAR_KEYWORD for one in parameters):  # which go to the problem's weights
        parameters += inspect.signature(module.weights).parameters.values()
    known = {one.name for one in parameters if one.kind is one.KEYWORD_ONLY}
    for name in options:
        if name not in known:
            all_of_them = ", ".join(sorted(known)) or "none"
            raise ValueError(
                f"The selector {method} has no option {brief(name)}; its options are {all_of_them}."
            )
    return selector


def _generator(seed: Any) -> np.random.Generator:
    if isinstance(seed, np.random.Generator):
        return seed
    if not isinstance(seed, numbers.Integral) or seed < 0:
        raise ValueError(
            f"seed={brief(seed)} is not usable; expected a whole number from 0 up, or a NumPy "
            "generator."
        )
    return np.random.default_rng(int(seed))
