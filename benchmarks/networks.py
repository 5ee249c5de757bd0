"""Networks: what a step costs, the examples in full with their controls, a peer, the picture.

    python benchmarks/networks.py --part cost
    python benchmarks/networks.py --part examples [--seeds 0 1 2]
    python benchmarks/networks.py --part memory
    python benchmarks/networks.py --part betty|torchopt|jaxopt --peer /path/to/python
    python benchmarks/networks.py --part picture

Prints Markdown; the picture goes to docs/networks.png. UNTUNED_DATA names the folder of the data.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import network_peers

EXAMPLES = Path(__file__).parent.parent / "examples"
sys.path.insert(0, str(EXAMPLES))

FULL = {
    "wrong_labels.py": ("mnist", "mnist-40", "mnist-next", "cifar", "cifar-next", "cifar-human"),
    "imbalance.py": (
        "two-digits", "tail-50", "tail-100", "tail-200", "cifar-tail-50", "cifar-tail-100",
        "cifar-tail-200",
    ),
    "weight_decay.py": ("mnist",),
    "distillation.py": ("softmax", "lenet"),
    "sinusoids.py": ("maml",),
}  # fmt: skip


def examples(seeds: list[int]) -> None:
    """Every task of every example, controls included."""
    for script, tasks in FULL.items():
        for task in tasks:
            command = [sys.executable, str(EXAMPLES / script), task, "--seeds", *map(str, seeds)]
            subprocess.run(command, check=True)


def side_by_side(
    call: Callable[[], Any], base: Callable[[], Any], rounds: int = 20
) -> tuple[float, float]:
    """Processor milliseconds of both in the median, ten calls at a time, turn by turn.

    So calls that differ (every second one learns) count in the mean, and a machine that slows
    down in the middle slows down both.
    """
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for one, seen in zip((call, base), times, strict=True):
            start = time.process_time()
            for _ in range(10):
                one()
            seen.append((time.process_time() - start) / 10)
    ours, theirs = (1e3 * float(np.median(seen)) for seen in times)
    return ours, theirs


def cost() -> None:
    """A step of the reweighter over a plain one, and of `auto` over the derivatives it uses."""
    import torch
    from torch.nn.functional import cross_entropy

    import untuned
    from loops import small_cnn

    torch.manual_seed(0)
    model, rows = small_cnn(), 640
    X, t, index = torch.rand(rows, 1, 28, 28), torch.randint(0, 10, (rows,)), torch.arange(64)
    optimizer = torch.optim.Adam(model.parameters())
    losses = lambda: cross_entropy(model(X[:64]), t[:64], reduction="none")
    trusted = lambda: cross_entropy(model(X[64:128]), t[64:128])

    def plain() -> None:
        optimizer.zero_grad()
        losses().mean().backward()
        optimizer.step()

    def with_weights(reweighter: Any, by_function: bool) -> None:
        found = losses()
        weights = reweighter(losses if by_function else found, index, trusted)
        optimizer.zero_grad()
        (weights * found).mean().backward()
        optimizer.step()

    print("| step | processor ms | times a plain one |\n|---|---|---|")
    choices: tuple[dict[str, Any], ...] = (
        {"every": 1},
        {"every": 2},
        {"every": 2, "order": 1},
        {"every": 10},
        {"form": "batch"},
    )
    for options in choices:
        reweighter = untuned.Reweighter(model, rows=rows, **options)
        step = lambda r=reweighter, o=options: with_weights(r, o.get("order") == 1)
        ms, base = side_by_side(step, plain)
        print(f"| Reweighter({options}) | {ms:.2f} | {ms / base:.2f} |", flush=True)

    whole, bare = auto_and_bare(model, X, t)
    ms, base = side_by_side(whole, plain)
    print(f"| auto | {ms:.2f} | {ms / base:.2f} |")
    ours, theirs = side_by_side(whole, bare)
    print(f"\nA step of auto over its bare derivatives: {ours / theirs:.2f} (target 1.3)")


def auto_and_bare(model: Any, X: Any, t: Any) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A step of `auto` on 64 rows, and the derivatives that it takes."""
    import torch
    from torch.nn.functional import cross_entropy

    import untuned
    from untuned.data.batches import Batch, Draws

    rows = len(t)
    y, apply = untuned.from_module(model)
    f = lambda x, y, batch: cross_entropy(apply(y, batch[0]), batch[1])
    g = lambda x, y, batch: (
        torch.sigmoid(x[batch[2]]) * cross_entropy(apply(y, batch[0]), batch[1], reduction="none")
    ).mean()
    x = torch.zeros(rows)
    o = untuned.oracles(f, g, like=(x, y))
    solver = untuned.solvers.Auto(stochastic=True, network=True)
    numbers = np.arange(128).reshape(2, 64)
    batch = Batch(Draws((X, t, torch.arange(rows)), numbers), (X[128:192], t[128:192]))
    state = solver.init(o, x, y)
    some = (X[:64], t[:64], torch.arange(64))

    def bare() -> None:
        o.inner_grad(x, y, some)
        o.outer(x, y, batch.outer)
        o.inner_cross(x, y, y, some)

    return lambda: solver.step(o, state, batch), bare


def memory() -> None:
    """The most that a step of `auto` allocates over what its bare derivatives do.

    By torch's own record of every allocation and release on the processor, less what was there
    before; so what a state holds from step to step (y three times, its moments, v) counts apart.
    """
    import torch

    import untuned
    from loops import small_cnn

    torch.manual_seed(0)
    for width, rows in ((1, 640), (4, 640)):
        model = small_cnn(width)
        X, t = torch.rand(rows, width, 28, 28), torch.randint(0, 10, (rows,))
        ours, theirs = (peak(call) for call in auto_and_bare(model, X, t))
        size = sum(part.numel() for part in untuned.from_module(model)[0].values())
        print(
            f"{size} variables: a step of auto {ours / 2**20:.2f} MB, bare derivatives "
            f"{theirs / 2**20:.2f} MB, ratio {ours / theirs:.2f} (target 1.2)",
            flush=True,
        )


def peak(call: Callable[[], Any]) -> int:
    """Bytes at the highest point of a call above those at its start."""
    from torch.profiler import ProfilerActivity, profile

    call()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        call()
    events = seen.profiler.kineto_results.events()
    moves = [event.nbytes() for event in sorted(events, key=lambda e: e.start_ns())
             if event.name() == "[memory]"]  # fmt: skip
    return int(np.maximum.accumulate(np.cumsum(moves))[-1])


def picture(epochs: int = 15) -> None:
    """Weights of right and wrong rows over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    from loops import reweighted, small_cnn
    from wrong_labels import task

    given = task("mnist", 0)
    assert given.wrong is not None
    wrong = given.wrong.numpy()
    seen = [np.full(len(wrong), 0.5)]
    reweighted(given, small_cnn, epochs, 0, watch=lambda weights: seen.append(weights.numpy()))
    figure, axes = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
    for rows, name, color in ((~wrong, "right", "tab:blue"), (wrong, "wrong", "tab:orange")):
        low, middle, high = np.quantile([part[rows] for part in seen], (0.1, 0.5, 0.9), axis=1)
        axes.plot(middle, color=color, label=f"rows with {name} labels")
        axes.fill_between(range(len(seen)), low, high, color=color, alpha=0.2, linewidth=0)
    axes.set(xlabel="epoch", ylabel="weight", ylim=(0, 1), xlim=(0, epochs))
    axes.legend(loc="upper left")
    figure.savefig(Path(__file__).parent.parent / "docs" / "networks.png", dpi=120)


def main() -> None:
    """The parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parts = ("cost", "memory", "examples", "picture", "betty", "torchopt", "jaxopt")
    parser.add_argument("--part", choices=parts, default="cost")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--peer", help="a Python in whose environment the peer is")
    parser.add_argument("--tasks", nargs="+", default=[], help="of betty; all of them by default")
    asked = parser.parse_args()
    if asked.part == "examples":
        examples(asked.seeds)
    elif asked.part in ("betty", "torchopt", "jaxopt"):
        if not asked.peer:
            raise SystemExit(f"Give --peer, the path of a Python that has {asked.part}.")
        some = {"tasks": asked.tasks} if asked.part == "betty" else {}
        getattr(network_peers, asked.part)(asked.peer, asked.seeds, **some)
    else:
        {"cost": cost, "memory": memory, "picture": picture}[asked.part]()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch

    torch.set_num_threads(1)
    main()
