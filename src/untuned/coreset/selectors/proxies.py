"""The models that stand for training: the last layer alone, or the whole network.

    head   logits = features @ coef + intercept, with ridge: strongly convex, as theory assumes
    full   logits = the whole module, starting from the module's own parameters

Both in torch, through one interface, so that a problem over them is written once.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from untuned.coreset.selectors.candidates import Candidates, Head, tensor
from untuned.ops import torch as ops
from untuned.ops.module import from_module
from untuned.problem.derivatives import Oracles
from untuned.solvers.numerics.newton_cg import solve_inner
from untuned.util.wording import unknown

PROXIES = ("full", "head")
EXACT = 1e-4  # share of the error that may remain in a solved head
MOST_LINEAR_STEPS = 200

Tree = Any


class Proxy(NamedTuple):
    """A model as functions of its parameters."""

    start: Tree  # the parameters of the model as it is
    rows: Tree  # what `losses` needs of the candidates, row by row
    losses: Callable[[Tree, Tree], Any]  # (parameters, rows) -> one loss per row
    penalty: Callable[[Tree], Any]

    def tensor(self, values: np.ndarray) -> Any:
        """An array in the dtype and on the device that it computes in."""
        return torch.tensor(values).to(next(iter(self.start.values())))


def get(name: str, c: Candidates) -> Proxy:
    """A proxy by name, for these candidates."""
    if name not in PROXIES:
        raise unknown("proxy", name, PROXIES)
    return head(c) if name == "head" or c.model is None else full(c)


def head(c: Candidates, start: Head | None = None) -> Proxy:
    """The last layer, on the features that the layers before it give."""
    coef, intercept = (torch.tensor(part) for part in start or c.head)
    rows = {"features": torch.tensor(c.features), "label": torch.tensor(c.label)}
    ridge = c.ridge

    def losses(y: Tree, rows: Tree) -> Any:
        logits = torch.addmm(y["intercept"], rows["features"], y["coef"])
        return functional.cross_entropy(logits, rows["label"], reduction="none")

    def penalty(y: Tree) -> Any:
        return 0.5 * ridge * (torch.sum(y["coef"] ** 2) + torch.sum(y["intercept"] ** 2))

    return Proxy({"coef": coef, "intercept": intercept}, rows, losses, penalty)


def full(c: Candidates) -> Proxy:
    """The whole network, in the mode it is in; classes that take no part are left out."""
    # Half precision is too coarse for what is solved here.
    is_half = next(c.model.parameters()).element_size() < 4
    model = deepcopy(c.model).float() if is_half else c.model
    start, apply = from_module(model)
    inputs = tensor(c.X, model)
    classes = torch.tensor(c.classes, device=inputs.device)
    rows = {"X": inputs, "label": torch.tensor(c.label, device=inputs.device)}

    def losses(y: Tree, rows: Tree) -> Any:
        logits = apply(y, rows["X"]).index_select(1, classes)
        return functional.cross_entropy(logits, rows["label"], reduction="none")

    return Proxy(start, rows, losses, lambda y: 0.0)


def solved(proxy: Proxy, weights: Any) -> Tree:
    """The parameters that minimize the loss with these weights, by Newton's method."""

    def g(x: Any, y: Tree, rows: Tree) -> Any:
        return x @ proxy.losses(y, rows) + proxy.penalty(y)

    o = Oracles(ops, g, g)
    found = solve_inner(o, weights, proxy.start, proxy.rows, EXACT, MOST_LINEAR_STEPS, lambda r: r)
    return found.y


def fitted_head(c: Candidates) -> Head:
    """The head that is best on all candidates, for features without a model."""
    shape = (c.features.shape[1], len(c.classes))
    nothing = Head(np.zeros(shape, np.float32), np.zeros(shape[1], np.float32))
    found = solved(head(c, nothing), torch.tensor(c.share, dtype=torch.float32))
    return Head(found["coef"].numpy(), found["intercept"].numpy())
