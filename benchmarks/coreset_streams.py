"""Speed of the selectors of `untuned.coreset.select`, and of the stream they serve.

Selections are timed on 160 features and 5 classes, as the stream's network has them; the
network's own pass over the candidates is timed apart. All is measured in processor seconds of one
thread, since a shared machine disturbs them least; the clock stands beside. The time of a whole
stream is put together from its pieces.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from common import Row, main
from untuned import coreset
from untuned.coreset.selectors import proxies
from untuned.coreset.selectors.candidates import Candidates, evaluating
from untuned.ops import torch as ops
from untuned.problem.derivatives import Oracles
from untuned_paper.continual.networks import SmallResNet
from untuned_paper.continual.protocols import SMALL_BUDGET

SIZES = ((10, 50, 0.1), (100, 500, 0.5))  # chosen, candidates, seconds allowed
# Of Split CIFAR-100 with all 20 tasks, balanced: steps, batches chosen from (19 tasks times 4
# passes and one of the first), tasks whose memory is chosen, and evaluations of 10 batches.
STEPS, CHOICES, TASKS, EVALUATIONS = 5000, 19 * 4 * 50 + 50, 20, 210
MINUTES = {"s-tfbo": 30.0, "d-tfbo": 45.0}


def timed(run: Callable[[], Any], rounds: int) -> tuple[float, float]:
    """Median processor seconds of a call, and of the clock."""
    cpu, clock = [], []
    run()
    for _ in range(rounds):
        before, start = time.process_time(), time.perf_counter()
        run()
        cpu.append(time.process_time() - before)
        clock.append(time.perf_counter() - start)
    return float(np.median(cpu)), float(np.median(clock))


def selections(rounds: int) -> dict[tuple[str, int], tuple[float, float]]:
    """Every selector at both sizes, on features."""
    rng = np.random.default_rng(0)
    found = {}
    for size, count, _ in SIZES:
        y = np.arange(count) % 5
        X = (rng.normal(size=(count, 160)) + np.eye(5, 160)[y]).astype(np.float32)
        call = partial(coreset.select, torch.nn.Sequential(torch.nn.Linear(160, 5)), X, y, size)
        for name in coreset.names():
            options = SMALL_BUDGET.get(name, {})
            found[name, count] = timed(partial(call, method=name, **options), rounds)
    return found


def measure(quick: bool) -> list[Row]:
    """Selections, the products of one, and what a stream of 20 tasks takes."""
    torch.set_num_threads(1)
    rounds = 3 if quick else 11
    found = selections(rounds)
    rows = [
        Row(
            f"{name}: {size} of {count}", target, found[name, count][0], " s",
            f"{found[name, count][1]:.3f} s by the clock",
        )
        for size, count, target in SIZES
        for name in coreset.names()
    ]  # fmt: skip
    net: Any = SmallResNet(100)
    net = net.to(memory_format=torch.channels_last)
    images, few = torch.rand(50, 3, 32, 32), torch.rand(10, 3, 32, 32)
    label = torch.arange(10) % 5
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.8)

    def step() -> None:
        loss = functional.cross_entropy(net(few), label) + functional.cross_entropy(net(few), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def forward() -> None:
        with evaluating(net), torch.no_grad():  # as choosing and testing do
            net(images)

    training, _ = timed(step, rounds)
    looking, _ = timed(forward, rounds)
    rows.append(Row("a training step, 10 rows and 10 replayed", None, training, " s"))
    rows.append(Row("the network on 50 images", None, looking, " s"))
    for name, minutes in MINUTES.items():
        choosing = CHOICES * (looking + found[name, 50][0])
        remembering = TASKS * 10 * looking + TASKS * found[name, 500][0]
        total = STEPS * training + choosing + remembering + EVALUATIONS * 10 * looking
        rows.append(
            Row(
                f"{name}: 20 tasks, put together", minutes, total / 60, " min",
                f"{STEPS * training / 60:.1f} training, {choosing / 60:.1f} choosing",
            )
        )  # fmt: skip
    return [*rows, *products(net, images, rounds)]


def products(net: Any, images: Any, rounds: int) -> list[Row]:
    """<grad l_i, v> of 50 images on the whole network: backward twice, or forward once."""
    net.eval()
    y = np.arange(50) % 5
    share = np.full(50, 1 / 50)
    c = Candidates(images.numpy(), y, np.arange(5), share, net, np.random.default_rng(0))
    model = proxies.full(c)
    v = {name: torch.randn_like(leaf) for name, leaf in model.start.items()}
    inner = lambda x, y, rows: x @ model.losses(y, rows)
    o = Oracles(ops, inner, inner)
    weight = torch.tensor(share, dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own
        forward, _ = timed(
            lambda: torch.func.jvp(lambda y: model.losses(y, model.rows), (model.start,), (v,)),
            rounds,
        )
    alone, _ = timed(lambda: o.linear(weight, model.start, model.rows).cross(v), rounds)
    both, _ = timed(lambda: o.inner(weight, model.start, v, model.rows), rounds)
    return [
        Row("full proxy: <grad l_i, v> by one forward product", None, forward, " s"),
        Row("the same by two backward passes", None, alone, " s"),
        Row("these and the Hessian product from the same passes", None, both, " s"),
    ]


if __name__ == "__main__":
    main(measure)
