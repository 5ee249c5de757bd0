"""What a selector may look at: rows, their labels, a model's features and last layer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from untuned.util.wording import brief

# Rows per forward pass. A network that keeps no running statistics normalises by the rows it is
# given, so this is one number for all selectors, and that of the stream's test batches.
ROWS_PER_PASS = 50
RIDGE = 0.01  # of a head, in units of the mean squared length of the features: free of their scale


class Head(NamedTuple):
    """A linear layer: logits are features @ coef + intercept."""

    coef: np.ndarray  # (features, classes)
    intercept: np.ndarray  # (classes,)


@dataclass(frozen=True)
class Candidates:
    """Rows to choose from; features and head are computed when a selector first asks for them."""

    X: np.ndarray
    label: np.ndarray  # (rows,) the place of each row's class among `classes`
    classes: np.ndarray  # the outputs of the model that take part
    share: np.ndarray  # (rows,) how much each row counts; they sum to one
    model: Any  # a torch module, or None where the rows are features themselves
    rng: np.random.Generator

    def __len__(self) -> int:
        return len(self.label)

    @cached_property
    def flat(self) -> np.ndarray:
        """The inputs, one vector per row."""
        return np.asarray(self.X, np.float32).reshape(len(self), -1)

    @cached_property
    def features(self) -> np.ndarray:
        """What the last layer sees of each row; the rows themselves without a model."""
        if self.model is None:
            return self.flat
        features = _inputs_of_last_layer(self.model, self.X)
        require_finite(features, "The model's features")
        return features

    @cached_property
    def head(self) -> Head:
        """The last layer, restricted to `classes`; without a model, one fitted to all rows."""
        if self.model is None:
            from untuned.coreset.selectors.proxies import fitted_head

            return fitted_head(self)
        layer = last_layer(self.model)
        weight = as_numpy(layer.weight.float())[self.classes].T
        bias = np.zeros(len(self.classes), weight.dtype)
        if layer.bias is not None:
            bias = as_numpy(layer.bias.float())[self.classes]
        return Head(np.ascontiguousarray(weight), bias)

    @cached_property
    def residuals(self) -> np.ndarray:
        """Gradient of each row's loss in its logits: probabilities minus the label's indicator.

        The gradient in the last layer is its outer product with (features, 1).
        """
        logits = self.features @ self.head.coef + self.head.intercept
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(len(self)), self.label] -= 1
        return p

    @property
    def ridge(self) -> float:
        """The penalty that makes a head strongly convex, at the scale of its features."""
        return RIDGE * (1 + float(np.mean(np.einsum("ij,ij->i", self.features, self.features))))

    def members(self) -> Iterator[np.ndarray]:
        """The rows of each class that has any."""
        for place in np.unique(self.label):
            yield np.flatnonzero(self.label == place)


def require_finite(values: np.ndarray, what: str) -> None:
    """Refuse NaN and infinities in one sentence that names the first row."""
    bad = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
    if bad.any():
        raise ValueError(
            f"{what} of row {int(np.argmax(bad))} hold a value that is not finite; remove such "
            "rows or repair them first."
        )


def last_layer(model: Any) -> Any:
    """The linear layer that makes the model's output: its last one, in order of definition."""
    from torch import nn

    layers = [part for part in model.modules() if isinstance(part, nn.Linear)]
    if not layers:
        raise _no_last_layer(model, "it holds no torch.nn.Linear")
    return layers[-1]


@contextlib.contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Dropout off and statistics frozen; afterwards every module is back in its own mode."""
    training = [part for part in model.modules() if part.training]
    model.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def outputs(model: Any) -> int:
    """How many classes the model's last layer tells apart."""
    return int(last_layer(model).out_features)


def tensor(X: np.ndarray, model: Any) -> Any:
    """Rows as the model wants them: on its device, and in its dtype unless they are its words."""
    import torch

    like = next(model.parameters())
    dtype = torch.int64 if are_words(X, model) else like.dtype
    return torch.as_tensor(np.asarray(X), dtype=dtype, device=like.device)


def are_words(X: np.ndarray, model: Any) -> bool:
    """Whether rows are numbers of words: whole numbers, for a model with an embedding."""
    from torch import nn

    embeds = any(isinstance(part, nn.Embedding | nn.EmbeddingBag) for part in model.modules())
    return embeds and X.dtype.kind in "iu"


def as_numpy(values: Any) -> np.ndarray:
    """NumPy's view of arrays, tensors and frames, which has no bfloat16, in torch's byte order."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        is_brief = values.is_floating_point() and values.element_size() < 4
        values = (values.float() if is_brief else values).numpy()
    values = np.asarray(values)
    return values.astype(values.dtype.newbyteorder("="), copy=False)


def _inputs_of_last_layer(model: Any, X: np.ndarray) -> np.ndarray:
    import torch

    layer, seen = last_layer(model), []
    hook = layer.register_forward_hook(lambda _, given, made: seen.append((given[0], made)))
    parts = []
    try:
        with evaluating(model), torch.no_grad():
            for start in range(0, len(X), ROWS_PER_PASS):
                seen.clear()
                made = model(tensor(X[start : start + ROWS_PER_PASS], model))
                if len(seen) != 1 or made.shape != seen[0][1].shape:
                    raise _no_last_layer(model, "its last torch.nn.Linear is not used once, last")
                if made is not seen[0][1] and not torch.equal(made, seen[0][1]):
                    raise _no_last_layer(model, "its output is changed after the last layer")
                parts.append(as_numpy(seen[0][0]))
    finally:
        hook.remove()
    return np.concatenate(parts).astype(np.float32)


def _no_last_layer(model: Any, why: str) -> ValueError:
    return ValueError(
        f"The model {brief(type(model).__name__)} has no last linear layer to choose by: {why}; "
        'give one that ends with torch.nn.Linear, features in place of a model, or proxy="full".'
    )
