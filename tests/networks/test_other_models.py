"""`Reweighter` and `from_module` on models that are no plain stack of layers."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss

import untuned
from untuned.networks.direction import Direction
from untuned.networks.halves import Halves, calls_of
from untuned.networks.products import Pullback
from untuned.networks.shares import Shares

ROWS, TRUSTED, WORDS = 96, 32, 20


def texts():
    """Rows of six words, the first of which tells the class; a third of the labels is wrong."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, ROWS + TRUSTED)
    words = random.integers(4, WORDS, (ROWS + TRUSTED, 6))
    words[:, :2] = 1 + labels[:, None]
    given = labels.copy()
    given[: ROWS // 3] = random.integers(0, 3, ROWS // 3)
    return torch.as_tensor(words), torch.as_tensor(given)


class Bag(torch.nn.Module):
    """Words, their mean, and a linear layer."""

    def __init__(self, kind, sparse):
        super().__init__()
        torch.manual_seed(0)
        self.words = kind(WORDS, 5, sparse=sparse)
        self.last = torch.nn.Linear(5, 3)

    def forward(self, rows):
        found = self.words(rows)
        return self.last(found.mean(1) if found.ndim == 3 else found)


class Sequence(torch.nn.Module):
    """A recurrent layer, of which the last step counts."""

    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.body, self.last = kind(4, 6, batch_first=True), torch.nn.Linear(6, 3)

    def forward(self, rows):
        return self.last(self.body(rows)[0][:, -1])


def learned(model, order=2, steps=30):
    """The weights after a user's loop."""
    words, given = texts()
    reweighter = untuned.Reweighter(model, rows=ROWS, order=order)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(steps):
        random = np.random.default_rng([1, step])
        index = torch.as_tensor(random.permutation(ROWS)[:24])
        checked = ROWS + torch.as_tensor(random.permutation(TRUSTED)[:16])
        rows = lambda at=index: cross_entropy(model(words[at]), given[at], reduction="none")
        losses = rows()
        trusted = lambda at=checked: cross_entropy(model(words[at]), given[at])
        weights = reweighter(rows if order == 1 else losses, index, trusted)
        optimizer.zero_grad()
        (weights * losses).mean().backward()
        optimizer.step()
    return reweighter.weights


@pytest.mark.parametrize(
    ("kind", "order"),
    [(torch.nn.Embedding, 1), (torch.nn.Embedding, 2), (torch.nn.EmbeddingBag, 1)],
)
def test_sparse_gradients_teach_as_dense_ones_do(kind, order):
    dense, sparse = (learned(Bag(kind, sparse), order) for sparse in (False, True))
    assert float(dense.std()) > 0.05
    torch.testing.assert_close(sparse, dense)


def test_what_has_no_second_derivatives_is_said():
    with pytest.raises(ValueError, match=r"use Reweighter\(order=1\)"):
        learned(Bag(torch.nn.EmbeddingBag, sparse=False))


@pytest.mark.parametrize("sparse", [False, True])
def test_minimize_takes_sparse_gradients(sparse):
    """Dense and sparse gradients of the same network are the same run."""
    words, given = texts()
    runs = []
    for option in (False, sparse):
        start, apply = untuned.from_module(Bag(torch.nn.EmbeddingBag, option))
        f = lambda x, y, batch, apply=apply: cross_entropy(apply(y, batch[0]), batch[1])
        g = lambda x, y, batch, apply=apply: (
            torch.sigmoid(x[batch[2]])
            * cross_entropy(apply(y, batch[0]), batch[1], reduction="none")
        ).mean()
        result = untuned.minimize(
            f, g, torch.zeros(ROWS), start,
            outer_data=(words[ROWS:], given[ROWS:]),
            inner_data=(words[:ROWS], given[:ROWS], torch.arange(ROWS)),
            batch_size=(24, 16), max_steps=10, seed=0,
        )  # fmt: skip
        runs.append(result.y)
    torch.testing.assert_close(runs[0], runs[1])


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_products_of_recurrent_networks_are_those_of_each_row_alone(kind):
    model = Sequence(kind).double()
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(7, 5, 4, generator=generator, dtype=torch.float64)
    labels = torch.arange(7) % 3
    parameters = dict(model.named_parameters())
    v = {name: torch.randn_like(part) for name, part in parameters.items()}
    losses = cross_entropy(model(features), labels, reduction="none")
    found = Pullback(losses, torch.full((7,), 1 / 7), parameters).along(v)
    for row in range(7):
        loss = cross_entropy(model(features[row : row + 1]), labels[row : row + 1])
        slopes = torch.autograd.grad(loss, list(parameters.values()))
        expected = sum((s * v[name]).sum() for s, name in zip(slopes, v, strict=True))
        torch.testing.assert_close(found[row], expected)


def test_running_means_of_a_bfloat16_model_are_in_full_precision():
    """0.999 of a bfloat16 number is that number: squares would stay what they were at first."""
    part = torch.ones(3, dtype=torch.bfloat16)
    direction = Direction({"a": part})
    for size in [4.0] * 100 + [1.0] * 3000:
        direction.add({"a": size * part}, {"a": size * part}, 1.0)
    squares = 0.0
    for size in [4.0] * 100 + [1.0] * 3000:
        squares = 0.999 * squares + 0.001 * size**2
    expected = torch.full((3,), (1.01 * squares / (1 - 0.999**3100)) ** -0.5)
    torch.testing.assert_close(direction.value()["a"], expected, rtol=1e-3, atol=0)
    model = torch.nn.Linear(4, 3).bfloat16()
    features, labels = torch.randn(8, 4).bfloat16(), torch.arange(8) % 3
    reweighter = untuned.Reweighter(model, rows=8)
    losses = cross_entropy(model(features), labels, reduction="none")
    weights = reweighter(losses, torch.arange(8), lambda: cross_entropy(model(features), labels))
    assert weights.dtype == torch.bfloat16
    assert float(reweighter.weights.std()) > 0


@dataclass
class Made:
    """What a model may give in place of a tensor."""

    logits: torch.Tensor
    size: torch.Tensor


class WithOutputs(torch.nn.Module):
    """Two outputs in an object."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 3), torch.nn.Linear(4, 1)

    def forward(self, rows):
        return Made(self.first(rows), self.second(rows)[:, 0])


def test_outputs_in_an_object_have_rows():
    torch.manual_seed(0)
    model, halves = WithOutputs(), Halves(12)
    features, labels = torch.randn(12, 4), torch.arange(12) % 3
    with calls_of(model) as calls:
        made = model(features)
    loss = cross_entropy(made.logits, labels) + mse_loss(made.size, labels.float())
    assert halves.choose(loss, calls, 1, None, Shares(0, torch.device("cpu"))) == (1, 0.5)


def test_losses_of_several_labels_are_told_to_be_one_for_each_row():
    reweighter = untuned.Reweighter(torch.nn.Linear(4, 3), rows=8)
    with pytest.raises(ValueError, match=r"shape \(8, 3\).*losses\.mean\(1\)"):
        reweighter(torch.ones(8, 3), torch.arange(8), lambda: torch.ones(()))


def test_frozen_layers_are_not_trained_by_minimize():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    model[0].requires_grad_(False)
    parameters, apply = untuned.from_module(model)
    assert sorted(parameters) == ["2.bias", "2.weight"]
    rows = torch.randn(6, 4)
    torch.testing.assert_close(apply(parameters, rows), model(rows))
    model.requires_grad_(False)
    assert len(untuned.from_module(model)[0]) == 4
