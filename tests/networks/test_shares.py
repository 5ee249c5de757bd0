"""`Shares`: the classes of rows, and what trusted rows of each count."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

import untuned
from untuned.networks.halves import Halves, calls_of
from untuned.networks.products import gradients
from untuned.networks.shares import Shares, labels_of

LABELS = torch.tensor([2, 0, 1, 1, 2, 0])


def shares_of(labels):
    shares = Shares(len(labels), torch.device("cpu"))
    shares.see(torch.arange(len(labels)), torch.as_tensor(labels))
    return shares


def cast(outputs):
    with torch.autocast("cpu", torch.bfloat16):
        return torch.nn.Linear(3, 3)(outputs)


@pytest.mark.parametrize(
    "loss",
    [
        lambda z: cross_entropy(z, LABELS, reduction="none"),
        lambda z: 2 * cross_entropy(z, LABELS, reduction="none").sqrt(),
        lambda z: cross_entropy(z, LABELS, reduction="none", label_smoothing=0.1),
        lambda z: cross_entropy(z, LABELS, reduction="none", weight=torch.ones(3)),
        lambda z: cross_entropy(cast(z), LABELS, reduction="none"),
        lambda z: torch.nn.NLLLoss(reduction="none")(z.log_softmax(1), LABELS),
    ],
)
def test_labels_are_read_from_cross_entropies(loss):
    outputs = torch.randn(6, 3, requires_grad=True)
    assert labels_of(loss(outputs)).tolist() == LABELS.tolist()


def test_labels_of_two_classes_and_of_none():
    outputs = torch.randn(6, 1, requires_grad=True)
    two = (LABELS > 0).float()
    for shape in ((6,), (6, 1)):
        losses = binary_cross_entropy_with_logits(
            outputs.reshape(shape), two.reshape(shape), reduction="none"
        ).reshape(-1)
        assert labels_of(losses).tolist() == two.tolist()
    several = binary_cross_entropy_with_logits(
        torch.randn(6, 3, requires_grad=True), torch.zeros(6, 3), reduction="none"
    ).mean(1)
    squares = mse_loss(outputs[:, 0], two, reduction="none")
    spent = cross_entropy(torch.randn(6, 3, requires_grad=True), LABELS, reduction="none")
    spent.sum().backward()
    for losses in (several, squares, squares.detach(), spent):
        assert (labels_of(losses) == -1).all()


def test_chance_is_told_as_scipy_has_it():
    """Two standard errors of chi-square around its mean, with both sides drawn."""
    random = np.random.default_rng(0)
    verdicts = set()
    for _ in range(40):
        rows = random.integers(1, 60, 4)
        trusted = random.multinomial(30, (rows + 10) / (rows + 10).sum())
        found = shares_of(np.repeat(range(4), rows)).worth(
            dict(enumerate(trusted.tolist())), {k: int(max(n, 1)) for k, n in enumerate(trusted)}
        )
        distance = chisquare(trusted, 30 * rows / rows.sum()).statistic / (1 + 30 / rows.sum())
        assert bool(found) == (distance <= 3 + 2 * 6**0.5)
        verdicts.add(bool(found))
    assert verdicts == {True, False}


def test_rows_may_come_again_with_other_labels():
    shares = shares_of([0, 0, 1, 1])
    shares.see(torch.tensor([0, 1, 1]), torch.tensor([1, 1, 1]))
    assert shares.worth({1: 3}, {1: 2}) == {}  # one class: there are no shares
    shares.see(torch.tensor([3]), torch.tensor([0]))
    assert shares.worth({0: 2, 1: 2}, {0: 1, 1: 1}) == {0: 0.5, 1: 1.5}
    assert shares.worth({0: 2, 2: 2}, {0: 1, 2: 1}) == {}  # a class that was never trained on
    again = Shares(4, torch.device("cpu"))
    again.load_state_dict(shares.state_dict())
    assert again.worth({0: 2, 1: 2}, {0: 1, 1: 1}) == {0: 0.5, 1: 1.5}


def test_a_class_without_trusted_rows_is_usable_only_where_that_is_meant():
    labels = np.append(np.repeat(range(10), 100), -1)
    shares, rows = shares_of(labels), torch.tensor([999, 0, 1000, 998])
    assert shares.usable(rows).all()
    few, many = (dict.fromkeys(range(9), count) for count in (4, 40))
    assert shares.worth(few, few)
    assert shares.usable(rows).tolist() == [False, True, True, False]
    assert not shares.worth(many, many)
    assert shares.usable(rows).all()


@pytest.mark.parametrize("rows", [(50, 50), (900, 10)])
def test_a_half_has_the_gradient_of_its_rows_at_the_shares_of_the_training_rows(rows):
    """Trusted rows 7 : 5; of rows 50 : 50 that is chance, of rows 900 : 10 it is meant."""
    torch.manual_seed(0)
    model, halves = torch.nn.Linear(4, 2), Halves(12)
    features, labels = torch.randn(12, 4), torch.tensor([0] * 7 + [1] * 5)
    shares = shares_of(np.repeat([0, 1], rows))
    for turn in (0, 1):
        with calls_of(model) as calls:
            loss = cross_entropy(model(features), labels)
        half, _ = halves.choose(loss, calls, turn, None, shares)
        found = gradients(loss, dict(model.named_parameters()))
        own = torch.cat([torch.arange(7)[turn::2], torch.arange(7, 12)[1 - turn :: 2]])
        each = cross_entropy(model(features[own]), labels[own], reduction="none")
        if rows == (50, 50):
            alike = [each[labels[own] == k].mean() / 2 for k in (0, 1)]
            expected = gradients(sum(alike), dict(model.named_parameters()))
        else:
            expected = gradients(each.mean(), dict(model.named_parameters()))
        assert half == turn
        for name, part in expected.items():
            torch.testing.assert_close(found[name], part)


def test_rows_of_a_class_without_trusted_rows_keep_their_weight():
    random = np.random.default_rng(0)
    labels = torch.as_tensor(np.append(random.integers(0, 5, 90), random.integers(0, 4, 10)))
    D = torch.as_tensor(random.standard_normal((100, 6))).float()
    model = torch.nn.Linear(6, 5)
    reweighter = untuned.Reweighter(model, rows=100)
    for _ in range(20):
        index = torch.as_tensor(random.permutation(100)[:40])
        losses = cross_entropy(model(D[index]), labels[index], reduction="none")
        reweighter(losses, index, lambda: cross_entropy(model(D[90:]), labels[90:]))
    moved = reweighter.weights != 0.5
    assert moved.tolist() == (labels != 4).tolist()


@pytest.mark.long
@pytest.mark.parametrize("meant", [False, True])
def test_weights_follow_shares_that_are_meant_and_no_others(meant):
    """Two classes that overlap, labels right: 18 trusted rows of one and 12 of the other."""
    random = np.random.default_rng(0)
    counts = [400, 20] if meant else [210, 210]
    labels = np.repeat([0, 1, 0, 1], [*counts, 18, 12])
    D = torch.tensor(random.standard_normal((len(labels), 6)) + 0.3 * labels[:, None]).float()
    t, trusted = torch.tensor(labels), torch.arange(420, 450)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    reweighter = untuned.Reweighter(model, rows=450)
    wanted = lambda: cross_entropy(model(D[trusted]), t[trusted])
    early = []
    for step in range(60):
        index = torch.as_tensor(random.permutation(450)[:50])
        losses = cross_entropy(model(D[index]), t[index], reduction="none")
        weights = reweighter(losses, index, wanted)
        optimizer.zero_grad()
        (weights * losses).mean().backward()
        optimizer.step()
        if step >= 20:
            early.append([float(reweighter.weights[t == k].mean()) for k in (0, 1)])
    apart = np.diff(np.mean(early, axis=0))[0]
    assert apart > 0.1 if meant else abs(apart) < 0.03


def test_labels_may_be_given_where_no_loss_tells_them():
    """With them a loss of one's own is weighed as the cross-entropy that it is."""
    random = np.random.default_rng(0)
    labels = torch.as_tensor(np.append(random.integers(0, 5, 90), random.integers(0, 4, 10)))
    D = torch.as_tensor(random.standard_normal((100, 6))).float()
    own = lambda z, t: z.logsumexp(1) - z[torch.arange(len(z)), t]
    weights = []
    for is_own, given in ((False, False), (True, True), (True, False)):
        torch.manual_seed(0)
        model = torch.nn.Linear(6, 5)
        reweighter = untuned.Reweighter(model, rows=100)
        batches = np.random.default_rng(1)
        for _ in range(20):
            index = torch.as_tensor(batches.permutation(100)[:40])
            z, t = model(D[index]), labels[index]
            losses = own(z, t) if is_own else cross_entropy(z, t, reduction="none")
            trusted = lambda model=model: cross_entropy(model(D[90:]), labels[90:])
            reweighter(losses, index, trusted, labels=t if given else None)
        weights.append(reweighter.weights)
    torch.testing.assert_close(weights[0], weights[1])
    assert (weights[0] - weights[2]).abs().max() > 0.01
    with pytest.raises(ValueError, match=r"labels has shape \(2,\) and type torch.int64"):
        reweighter(losses, index, trusted, labels=t[:2])
