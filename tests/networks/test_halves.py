"""`Halves`: whose gradient is taken, against the loss of those rows alone."""

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from untuned.networks.halves import Halves, calls_of
from untuned.networks.products import gradients
from untuned.networks.shares import Shares

ROWS = 23


class Named(torch.nn.Module):
    """Takes its rows by name beside a mask, and gives logits in a mapping beside a number."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, *, rows, mask):
        return {"scale": self.body[0].weight.sum(), "logits": self.body(rows * mask)}


def rows(classes=3):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(ROWS, 5, generator=generator)
    return features, torch.randint(0, classes, (ROWS,), generator=generator)


def network(classes=3):
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, classes))


def taught(halves, model, loss, turn):
    """The half that a loss is taken for, and its gradient."""
    with calls_of(model) as calls:
        value = loss()
    half, _ = halves.choose(value, calls, turn, None, Shares(0, torch.device("cpu")))
    return half, gradients(value, dict(model.named_parameters()))


def members(halves, model, loss_of, turn):
    """The rows that move the gradient, told by asking for each of them alone."""
    found = [taught(halves, model, lambda at=at: loss_of([at]), turn)[0] for at in range(ROWS)]
    return [at for at in range(ROWS) if found[at] == turn]


def test_a_half_has_the_gradient_of_its_own_rows():
    features, labels = rows()
    model, halves = network(), Halves(ROWS)
    loss_of = lambda at: cross_entropy(model(features[at]), labels[at], label_smoothing=0.1)
    taught(halves, model, lambda: loss_of(range(ROWS)), 0)  # all are dealt
    parts = [members(halves, model, loss_of, turn) for turn in (0, 1)]
    assert sorted(parts[0] + parts[1]) == list(range(ROWS))
    for label in range(3):
        sizes = [int((labels[part] == label).sum()) for part in parts]
        assert abs(sizes[0] - sizes[1]) <= 1, (label, sizes)
    for drawn in (torch.arange(ROWS), torch.randperm(ROWS), torch.tensor([*parts[0], parts[1][0]])):
        for turn, part in enumerate(parts):
            half, found = taught(halves, model, lambda at=drawn: loss_of(at), turn)
            assert half == turn
            own = [at for at in drawn.tolist() if at in part]
            expected = gradients(loss_of(own), dict(model.named_parameters()))
            for name, gradient in found.items():
                torch.testing.assert_close(gradient, expected[name], msg=name)


def test_rows_of_one_half_alone_are_that_halfs():
    """A batch without rows of the half whose turn it is teaches the other one, with all of them."""
    features, labels = rows()
    model, halves = network(), Halves(ROWS)
    loss_of = lambda at: cross_entropy(model(features[at]), labels[at])
    taught(halves, model, lambda: loss_of(range(ROWS)), 0)
    part = members(halves, model, loss_of, 1)
    half, found = taught(halves, model, lambda: loss_of(part), 0)
    assert half == 1
    expected = gradients(loss_of(part), dict(model.named_parameters()))
    torch.testing.assert_close(found, expected)


def test_a_look_without_gradients_is_no_call():
    features, labels = rows()
    model, halves = network(), Halves(ROWS)

    def loss():
        with torch.no_grad():
            model(features[:3])
        return cross_entropy(model(features), labels)

    assert [taught(halves, model, loss, turn)[0] for turn in (0, 1)] == [0, 1]


def test_the_only_row_of_its_class_is_in_both_halves():
    features, _ = rows()
    labels = torch.zeros(ROWS, dtype=torch.int64)
    labels[4] = 1
    model, halves = network(2), Halves(ROWS)
    loss_of = lambda at: cross_entropy(model(features[at]), labels[at])
    taught(halves, model, lambda: loss_of(range(ROWS)), 0)
    for turn in (0, 1):
        half, _ = taught(halves, model, lambda: loss_of([4]), turn)
        assert half == turn


def test_terms_beside_the_outputs_are_kept():
    """What a loss has from the parameters themselves belongs to both halves."""
    features, labels = rows(2)
    body = network(1)
    model, halves = Named(body), Halves(ROWS)

    def loss(at, penalty):
        made = model(rows=features[at], mask=torch.ones(len(at), 1))
        fit = binary_cross_entropy_with_logits(made["logits"][:, 0], labels[at].float())
        return fit + penalty * body[0].weight.square().sum()

    every = list(range(ROWS))
    (half, with_it), (_, without) = (
        taught(halves, model, lambda p=p: loss(every, p), 0) for p in (3.0, 0.0)
    )
    assert half == 0
    expected = 6 * body[0].weight.detach()
    torch.testing.assert_close(with_it["body.0.weight"] - without["body.0.weight"], expected)
    part = members(halves, model, lambda at: loss(at, 0.0), 0)
    sizes = [int((labels[part] == label).sum()) for label in (0, 1)]
    assert all(abs(2 * size - int((labels == k).sum())) <= 1 for k, size in enumerate(sizes))


@pytest.mark.parametrize("kind", ["twice", "never", "one number", "no rows in common"])
def test_rows_that_cannot_be_told_apart_count_whole(kind):
    features, labels = rows()
    model = network()
    if kind == "no rows in common":
        model = torch.nn.Sequential(model, torch.nn.Flatten(0))
    calls = {
        "twice": lambda: cross_entropy(model(features), labels) + model(features[:4]).sum(),
        "never": lambda: cross_entropy(model[2](model[1](model[0](features))), labels),
        "one number": lambda: cross_entropy(model(features[0]), labels[0]),
        "no rows in common": lambda: model(features).square().mean(),
    }
    halves = Halves(ROWS)
    for turn in (0, 1):
        half, found = taught(halves, model, calls[kind], turn)
        assert half == 0
        expected = gradients(calls[kind](), dict(model.named_parameters()))
        torch.testing.assert_close(found, expected)


def test_more_rows_than_are_remembered_are_dealt_by_their_numbers():
    features, labels = rows()
    model, halves = network(), Halves(12)
    loss_of = lambda at: cross_entropy(model(features[at]), labels[at])
    taught(halves, model, lambda: loss_of(range(ROWS)), 0)
    first, second = (members(halves, model, loss_of, turn) for turn in (0, 1))
    assert sorted(first + second) == list(range(ROWS))
    assert min(len(first), len(second)) > 4
    assert len(halves.state_dict()["rows"]) == 12


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float64, torch.bool])
def test_rows_are_known_again_in_every_type(dtype):
    features = (torch.randn(ROWS, 40, generator=torch.Generator().manual_seed(1)) > 0).to(dtype)
    body = torch.nn.Linear(40, 2)
    model = torch.nn.Sequential(body)
    model.register_forward_pre_hook(lambda _, given: (given[0].float(),))
    halves = Halves(ROWS)
    for order in (torch.arange(ROWS), torch.randperm(ROWS)):
        taught(halves, model, lambda at=order: model(features[at]).square().mean(), 0)
        assert len(halves.state_dict()["rows"]) == ROWS
