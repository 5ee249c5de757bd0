"""`Reweighter`: against products row by row, a NumPy twin of its steps, and wrong labels."""

import io
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import ddp_runs
import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.checkpoint import checkpoint

import untuned
from untuned.networks import products
from untuned.networks.products import Pullback

ROWS, TRUSTED = 240, 60


def blobs(seed=0):
    """Three classes in 8 dimensions, 40 % of the training labels drawn anew; which are wrong."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, ROWS + TRUSTED)
    features = random.standard_normal((ROWS + TRUSTED, 8)) + 4.0 * np.eye(3, 8)[labels]
    given = labels.copy()
    redrawn = random.random(ROWS) < 0.4
    given[:ROWS][redrawn] = random.integers(0, 3, redrawn.sum())
    as_tensor = lambda array: torch.as_tensor(array, dtype=torch.float32)
    return as_tensor(features), torch.as_tensor(given), (given != labels)[:ROWS]


def network(*between):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), *between, torch.nn.ReLU(), torch.nn.Linear(16, 3)
    )


def train(
    model, reweighter, steps, start=0, *, closure=False, autocast=False, optimizer=None, parts=1,
    features=None, labels=None,
):  # fmt: skip
    """A user's loop, whose batches depend on the step alone."""
    if features is None:
        features, labels, _ = blobs()
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(start, start + steps):
        random = np.random.default_rng([1, step])
        index = torch.as_tensor(random.permutation(ROWS)[:32])
        checked = ROWS + torch.as_tensor(random.permutation(TRUSTED)[:32])
        halves = [checked[checked % parts == k] for k in range(parts)]

        def rows(at=index, **options):
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                return cross_entropy(model(features[at]), labels[at], **options)

        losses = rows(reduction="none")
        asked = (lambda rows=rows: rows(reduction="none")) if closure else losses
        weights = reweighter(asked, index, [partial(rows, at) for at in halves])
        optimizer.zero_grad()
        (weights * losses).mean().backward()
        optimizer.step()
    return optimizer


def right_above_wrong(weights):
    return roc_auc_score(~blobs()[2], weights)


def test_products_are_those_of_each_row_alone():
    features, labels, _ = blobs()
    model = network().double()
    parameters = dict(model.named_parameters())
    rows = lambda: cross_entropy(model(features[:9].double()), labels[:9], reduction="none")
    v = {name: torch.randn_like(part) for name, part in parameters.items()}
    losses = rows()
    alone = []
    for loss in losses:
        found = torch.autograd.grad(loss, list(parameters.values()), retain_graph=True)
        alone.append(sum((a * b).sum() for a, b in zip(found, v.values(), strict=True)))
    pullback = Pullback(losses, torch.rand(9), parameters)
    torch.testing.assert_close(pullback.along(v), torch.stack(alone))
    torch.testing.assert_close(
        products.differences(rows, v, parameters, model), torch.stack(alone), rtol=1e-5, atol=1e-7
    )
    losses.mean().backward()  # the user's graph is still whole


def dealt(signs):
    """Rows of two signs in two halves, as `Halves` deals them; the only one of its sign in both."""
    halves = ([], [])
    for row, sign in enumerate(signs):
        alike = [sum(signs[k] == sign for k in half) for half in halves]
        halves[min((0, 1), key=lambda k: (alike[k], len(halves[k])))].append(row)
    alone = [row for row, sign in enumerate(signs) if np.sum(signs == sign) == 1]
    return [np.union1d(half, alone).astype(int) for half in halves]


@pytest.mark.parametrize(
    ("order", "trusted"), [(1, "one"), (2, "one"), (2, "pair"), (2, "called twice")]
)
def test_steps_are_the_twins(order, trusted):
    """A linear model with squared losses, whose gradients NumPy has in closed form."""
    random = np.random.default_rng(0)
    D, t = random.standard_normal((12, 3)), random.standard_normal(12)
    C, s = random.standard_normal((6, 3)), random.standard_normal(6)
    C[1::2], s[1::2] = C[::2] + 0.01, 0.3 * s[1::2]  # halves that do not want quite the same
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1, bias=False).double()
    reweighter = untuned.Reweighter(model, rows=12, order=order, every=1)
    x, sums, mean, square = np.zeros(12), np.zeros(12), np.zeros((2, 3)), np.zeros((2, 3))
    ways, seen, usual, said, used = np.zeros((2, 12)), [], 0.0, [], 1.0
    given = lambda array: torch.as_tensor(array)
    y = model.weight.detach().numpy()[0]
    halves = {
        "one": dealt(C @ y < s),
        "pair": [np.arange(6)[::2], np.arange(6)[1::2]],
        "called twice": [np.arange(6)],
    }[trusted]
    parts = len(halves)
    functions = {
        "one": lambda: mse_loss(model(given(C))[:, 0], given(s)),
        "pair": [lambda h=h: mse_loss(model(given(C[h]))[:, 0], given(s[h])) for h in halves],
        "called twice": lambda: sum(
            mse_loss(model(given(C[at]))[:, 0], given(s[at])) / 2 for at in (slice(3), slice(3, 6))
        ),
    }
    for k in range(1, 21):
        turn = (k - 1) % parts
        at = random.permutation(12)[:4]
        y = model.weight.detach().numpy()[0].copy()
        rows = lambda at=at: mse_loss(model(given(D[at]))[:, 0], given(t[at]), reduction="none")
        losses = rows()
        asked = rows if order == 1 else losses
        weights = reweighter(asked, given(at), functions[trusted])
        gradients = 2 * (D[at] @ y - t[at])[:, None] * D[at]
        half = halves[turn]
        wanted = 2 * C[half].T @ (C[half] @ y - s[half]) / len(half)
        training = (1 / (1 + np.exp(-x[at])) / 4) @ gradients
        share = len(half) / 6 if trusted == "one" else 1.0
        mean[turn] = 0.9**share * mean[turn] + (1 - 0.9**share) * wanted
        scale = training if order == 2 else wanted
        square[turn] = 0.999 * square[turn] + 0.001 * scale**2
        visits = -(-k // parts) if turn == 0 else k // parts
        there = square[turn] / (1 - 0.999**visits)
        v = mean[turn] / (1 - 0.9 ** (share * visits)) / np.sqrt(there + 0.01 * there.mean())
        p = gradients @ v
        usual = 0.99 * usual + 0.01 * np.mean(p**2)
        p = p / np.sqrt(usual / (1 - 0.99**k))
        other = ways[1 - turn][at]
        seen.append(np.mean((other - other.mean()) * p))
        sums[at] += p**2
        ways[turn][at] += p / np.sqrt(1 + sums[at])
        if np.any(seen):
            said.append(np.clip(1 + np.sum(seen) / np.sqrt(np.sum(np.square(seen))), 0, 1))
            used += 4 / (4 + len(said)) * (said[-1] - used)
        x = used * ways.sum(0)
        np.testing.assert_allclose(weights.numpy(), 1 / (1 + np.exp(-x[at])), rtol=1e-5)
        with torch.no_grad():
            model.weight.add_(0.1 * torch.randn(1, 3).double())
    np.testing.assert_allclose(reweighter.weights.numpy(), 1 / (1 + np.exp(-x)), rtol=1e-5)
    assert trusted != "pair" or any(0 < c < 1 for c in said)


def test_weights_of_a_batch_are_its_helpful_products():
    """With p of this batch and the trusted gradient of now: what harms gets nothing."""
    random = np.random.default_rng(1)
    D, t = random.standard_normal((8, 3)), random.standard_normal(8)
    C, s = random.standard_normal((5, 3)), random.standard_normal(5)
    model = torch.nn.Linear(3, 1, bias=False).double()
    y = random.standard_normal(3)
    model.weight.data.copy_(torch.as_tensor(y[None]))
    reweighter = untuned.Reweighter(model, form="batch")
    given = lambda array: torch.as_tensor(array)
    rows = lambda: mse_loss(model(given(D))[:, 0], given(t), reduction="none")
    trusted = lambda: mse_loss(model(given(C))[:, 0], given(s))
    weights = reweighter(rows(), None, trusted)
    gradients = 2 * (D @ y - t)[:, None] * D
    v = 2 * C.T @ (C @ y - s) / 5
    helpful = np.maximum(gradients @ v, 0)
    assert 0 < np.count_nonzero(helpful) < 8
    np.testing.assert_allclose(weights.numpy(), helpful / helpful.mean() / 2, rtol=1e-5)
    # Rows that all harm move nothing; with the same rows on both sides none does.
    harm = reweighter(-10 * rows()[weights > 0], None, trusted)
    assert not harm.any()
    with pytest.raises(ValueError, match="how many rows there are"):
        _ = reweighter.weights


def test_weights_of_batches_balance_classes():
    """200 rows of one class and 6 of another, 5 trusted rows of each; Adam, the same steps."""
    random = np.random.default_rng(0)
    labels = np.repeat([0, 1, 0, 1, 0, 1], (200, 6, 5, 5, 300, 300))
    D = torch.tensor(random.standard_normal((len(labels), 8)) + 0.8 * labels[:, None]).float()
    t = torch.tensor(labels)
    found = []
    for form in (None, "batch"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        reweighter = untuned.Reweighter(model, rows=206, form="batch")
        for _ in range(120):
            index = torch.as_tensor(random.permutation(206)[:50])
            losses = cross_entropy(model(D[index]), t[index], reduction="none")
            trusted = lambda m=model: cross_entropy(m(D[206:216]), t[206:216])
            weights = reweighter(losses, index, trusted) if form else 1.0
            optimizer.zero_grad()
            (weights * losses).mean().backward()
            optimizer.step()
        found.append(float((model(D[216:]).argmax(1) == t[216:]).float().mean()))
    assert found[1] > found[0] + 0.1
    assert reweighter.weights[200:].mean() > 3 * reweighter.weights[:200].mean()


@pytest.mark.long
@pytest.mark.parametrize("options", [{}, {"form": "loss"}, {"order": 1}, {"every": 1}])
def test_wrong_labels_get_smaller_weights(options):
    model = network()
    reweighter = untuned.Reweighter(model, rows=ROWS, **options)
    assert reweighter.weights.mean() == 0.5
    train(model, reweighter, 200, closure=options.get("order") == 1)
    weights = reweighter.weights
    assert ((weights >= 0) & (weights <= 1)).all()
    assert not weights.requires_grad
    assert right_above_wrong(weights) > 0.93


@pytest.mark.parametrize("parts", [1, 2])
def test_halves_keep_weights_of_wrong_labels_and_take_back_others(parts):
    """What half of the trusted rows teaches helps the other half where labels are wrong."""
    random = np.random.default_rng(0)
    right = random.integers(0, 3, ROWS + TRUSTED)
    features = random.standard_normal((ROWS + TRUSTED, 8)) + 3 * np.eye(3, 8)[right]
    wrong = (random.random(ROWS + TRUSTED) < 0.4) & (np.arange(ROWS + TRUSTED) < ROWS)
    spread = []
    for labels in (right, np.where(wrong, (right + 1) % 3, right)):
        model = network()
        reweighter = untuned.Reweighter(model, rows=ROWS, every=1)
        rows = {"features": torch.as_tensor(features).float(), "labels": torch.as_tensor(labels)}
        train(model, reweighter, 200, parts=parts, **rows)
        spread.append(float(reweighter.weights.std()))
    assert spread[0] < 0.05
    assert spread[1] > 0.3
    assert roc_auc_score(~wrong[:ROWS], reweighter.weights) > 0.95


@pytest.mark.long
def test_training_mode_and_bfloat16():
    """Batch norm and dropout in training mode, half precision: nothing is disturbed."""
    between = (torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.2))
    model = network(*between)
    reweighter = untuned.Reweighter(model, rows=ROWS)
    train(model, reweighter, 200, autocast=True)
    assert right_above_wrong(reweighter.weights) > 0.9
    features, labels, _ = blobs()
    index = torch.arange(16)
    for closure in (False, True):
        reweighter = untuned.Reweighter(model, rows=ROWS, order=1 if closure else 2, every=1)
        rows = lambda: cross_entropy(model(features[:16]), labels[:16], reduction="none")
        losses = rows()
        before = {name: part.clone() for name, part in model.state_dict().items()}
        grads = [part.grad.clone() for part in model.parameters()]
        reweighter(
            rows if closure else losses, index,
            lambda: cross_entropy(model(features[ROWS:]), labels[ROWS:]),
        )  # fmt: skip
        for name, part in model.state_dict().items():
            assert torch.equal(part, before[name]), name
        assert all(torch.equal(a.grad, b) for a, b in zip(model.parameters(), grads, strict=True))
        losses.sum().backward()  # the graph made before is whole


@pytest.mark.parametrize(
    ("options", "factor", "expected"),
    [
        ({}, 10, 5 * 6 + 7),
        ({}, 2, 22),
        ({"every": 2}, 10, 22),
        ({"every": 1}, 2, 44),
        ({"form": "loss"}, 10, 22),
    ],
)
def test_first_visits_move_weights_every_time_where_shares_are_meant(options, factor, expected):
    """Six batches of all rows, trusted rows 6 : 6: calls that ask for the trusted loss.

    A run that is resumed goes on counting visits.
    """
    features, labels = blobs()[0], (torch.arange(60) % factor == 0).long()
    balanced = torch.tensor([0, 1]).repeat(6)
    model = network()
    reweighter = untuned.Reweighter(model, rows=60, **options)
    asked = []

    def trusted():
        asked.append(1)
        return cross_entropy(model(features[60:72]), balanced)

    for call in range(44):
        index = torch.arange(60)[call % 6 * 10 :][:10]
        losses = cross_entropy(model(features[index]), labels[index], reduction="none")
        reweighter(losses, index, trusted)
        if call == 20:
            state = reweighter.state_dict()
            reweighter = untuned.Reweighter(model, rows=60, **options)
            reweighter.load_state_dict(state)
    assert len(asked) == expected


# What trusted rows tell of the classes: nothing; other shares by intent; no row of a class.
SHARES = {
    "alike": lambda index: None,
    "meant": lambda index: ((index % 10 == 0) | (index % 2 == 0) & (index >= ROWS)).long(),
    "absent": lambda index: torch.where(index == 0, 2, (index % 2)),
}


@pytest.mark.parametrize("shares", SHARES)
@pytest.mark.parametrize("form", ["rows", "loss", "batch"])
@pytest.mark.parametrize(("parts", "later"), [(1, 1), (1, 2), (2, 1)])
def test_a_run_resumes_bit_for_bit(form, parts, later, shares):
    """Also from a state that was kept in memory, and where trusted rows come in another form."""
    labels = SHARES[shares](torch.arange(ROWS + TRUSTED))
    features = None if labels is None else blobs()[0]
    go_on = partial(train, features=features, labels=labels)
    model = network()
    reweighter = untuned.Reweighter(model, rows=ROWS, form=form)
    optimizer = go_on(model, reweighter, 11, parts=parts)
    file, kept = io.BytesIO(), reweighter.state_dict()
    torch.save([part.state_dict() for part in (model, optimizer)], file)
    go_on(model, reweighter, 8, 11, optimizer=optimizer, parts=later)
    other = network()
    second = untuned.Reweighter(other, rows=ROWS, form=form)
    again = go_on(other, second, 4, parts=2)  # what it has learned meanwhile is forgotten
    file.seek(0)
    for part, state in zip((other, again), torch.load(file), strict=True):
        part.load_state_dict(state)
    saved = io.BytesIO()
    torch.save(kept, saved)
    saved.seek(0)
    second.load_state_dict(torch.load(saved))
    go_on(other, second, 8, 11, optimizer=again, parts=later)
    assert torch.equal(reweighter.weights, second.weights)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_function_of_the_loss_weighs_rows_never_seen():
    model = network()
    reweighter = untuned.Reweighter(model, form="loss")
    features, labels, wrong = blobs()
    half = ROWS // 2
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(100):
        losses = cross_entropy(model(features[:half]), labels[:half], reduction="none")
        trusted = lambda: cross_entropy(model(features[ROWS:]), labels[ROWS:])
        weights = reweighter(losses, None, trusted)
        optimizer.zero_grad()
        (weights * losses).mean().backward()
        optimizer.step()
    with torch.no_grad():
        unseen = cross_entropy(model(features[half:ROWS]), labels[half:ROWS], reduction="none")
    assert roc_auc_score(~wrong[half:], reweighter.weigh(unseen)) > 0.9
    with pytest.raises(ValueError, match="was not told how many rows"):
        _ = reweighter.weights


def test_micro_batches_add_up_as_without_it():
    """Gradients that a user accumulates over micro-batches are those of the weighted losses."""
    features, labels, _ = blobs()
    model = network()
    reweighter = untuned.Reweighter(model, rows=ROWS, every=1)
    given = []
    for index in torch.arange(64).split(16):
        losses = cross_entropy(model(features[index]), labels[index], reduction="none")
        trusted = lambda: cross_entropy(model(features[ROWS:]), labels[ROWS:])
        given.append(reweighter(losses, index, trusted))
        ((given[-1] * losses).mean() / 4).backward()
    losses = cross_entropy(model(features[:64]), labels[:64], reduction="none")
    expected = torch.autograd.grad((torch.cat(given) * losses).mean(), list(model.parameters()))
    for part, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(part.grad, gradient)


def test_parameters_may_be_frozen_and_losses_not_finite():
    model = network()
    model[0].weight.requires_grad_(False)
    reweighter = untuned.Reweighter(model, rows=ROWS, every=1)
    train(model, reweighter, 5)
    model[2].bias.requires_grad_(False)
    train(model, reweighter, 5)
    features, labels, _ = blobs()
    losses = cross_entropy(model(features[:4] * float("inf")), labels[:4], reduction="none")
    assert not losses.isfinite().any()
    before = reweighter.weights
    reweighter(losses, torch.arange(4), lambda: cross_entropy(model(features), labels))
    assert torch.equal(reweighter.weights, before)


def test_frozen_parameters_may_be_trained_later():
    """As whoever thaws a network layer by layer does, also from a state with fewer of them."""
    model = network()
    model[0].requires_grad_(False)
    reweighter = untuned.Reweighter(model, rows=ROWS, every=1)
    train(model, reweighter, 6)
    model[0].requires_grad_(True)
    resumed = untuned.Reweighter(model, rows=ROWS, every=1)
    resumed.load_state_dict(reweighter.state_dict())
    fresh = untuned.Reweighter(model, rows=ROWS, every=1)
    fresh.load_state_dict(reweighter.state_dict())
    fresh._directions = []  # what a thawed layer does: the averages begin anew
    ends = []
    for each in (reweighter, resumed, fresh):
        again = network()
        again.load_state_dict(model.state_dict())
        each._model = again
        train(again, each, 6, start=6)
        ends.append(each.weights)
    assert torch.equal(ends[0], ends[1])
    assert torch.equal(ends[0], ends[2])


@pytest.mark.process
def test_two_processes_have_the_same_weights(tmp_path):
    """And those of one process that sees the batches of both."""
    place = {"PYTHONPATH": os.pathsep.join(sys.path), "GLOO_SOCKET_IFNAME": "lo"}
    script = Path(ddp_runs.__file__)
    subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        check=True,
        timeout=120,
        env=os.environ | place,
    )
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    for name, first in found[0].items():
        for part, value in first.items():
            assert torch.equal(value, found[1][name][part]), (name, part)
    for form, name in (("rows", "plain"), ("rows", "one"), ("loss", "loss"), ("batch", "batch")):
        alone = ddp_runs.train(ddp_runs.plain(), (0, 1), form, one=name == "one")
        for part in ("x", "weights"):
            torch.testing.assert_close(found[0][name][part], alone[part], rtol=1e-4, atol=1e-5)
        assert (found[0][name]["weights"] != 0.5).any()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rows": 0}, "rows=0 is not usable"),
        ({"rows": None}, "rows=None is not usable"),
        ({"rows": 4, "form": "other"}, "form='other' is not one of"),
        ({"rows": 4, "order": 3}, "order=3 is not 1 or 2"),
        ({"rows": 4, "every": 0}, "every=0 is not usable"),
        ({"form": "batch", "every": 2}, "every=2 was given with form='batch'"),
    ],
)
def test_settings_that_cannot_be_meant(options, said):
    with pytest.raises(ValueError, match=said):
        untuned.Reweighter(network(), **options)


def test_what_cannot_be_used_is_said_in_one_sentence():
    model = network()
    features, labels, _ = blobs()
    reweighter = untuned.Reweighter(model, rows=4)
    losses = lambda: cross_entropy(model(features[:4]), labels[:4], reduction="none")
    trusted = lambda: cross_entropy(model(features), labels)
    index = torch.arange(4)
    with pytest.raises(ValueError, match="expected one loss per row"):
        reweighter(losses().mean(), index, trusted)
    with pytest.raises(ValueError, match="index goes from 1 to 4"):
        reweighter(losses(), index + 1, trusted)
    with pytest.raises(ValueError, match="index is None"):
        reweighter(losses(), None, trusted)
    for wrong in (index.double(), index > 1):  # a mask would be rows 0 and 1
        with pytest.raises(ValueError, match="one whole number for each"):
            reweighter(losses(), wrong, trusted)
    with pytest.raises(ValueError, match=r"order=1\) was given the losses themselves"):
        untuned.Reweighter(model, rows=4, order=1)(losses(), index, trusted)
    for wrong in (None, [trusted] * 3, [trusted, 4]):
        with pytest.raises(ValueError, match="or a pair of them, each for a half"):
            reweighter(losses(), index, wrong)
    every = untuned.Reweighter(model, rows=4, every=1)
    with pytest.raises(ValueError, match="The losses carry no graph"):
        every(losses().detach(), index, trusted)
    used = losses()
    used.mean().backward()
    with pytest.raises(ValueError, match="call the reweighter first, then backward"):
        every(used, index, trusted)
    given = features[:4].clone().requires_grad_()
    hidden = checkpoint(model, given, use_reentrant=True)
    with pytest.raises(ValueError, match="need use_reentrant=False"):
        every(cross_entropy(hidden, labels[:4], reduction="none"), index, trusted)
    with pytest.raises(ValueError, match="expected one number"):
        every(losses(), index, losses)
    with pytest.raises(ValueError, match="does not depend on the model"):
        every(losses(), index, lambda: torch.ones(()))
    with pytest.raises(ValueError, match="is a function of the loss; with another form"):
        reweighter.weigh(losses())
    with pytest.raises(ValueError, match="The state holds 4 weights"):
        untuned.Reweighter(model, rows=5).load_state_dict(reweighter.state_dict())
    of_losses = untuned.Reweighter(model, form="loss").state_dict()  # with as many knots
    with pytest.raises(ValueError, match="The state holds 16 weights"):
        untuned.Reweighter(model, rows=16).load_state_dict(of_losses)
    with pytest.raises(ValueError, match=r"expected a torch\.nn\.Module"):
        untuned.Reweighter(4, rows=4)
