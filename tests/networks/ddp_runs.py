"""Two processes that train one network together, each on half of every batch.

python ddp_runs.py OUT       what each process has at the end, as OUT/0.pt and OUT/1.pt
"""

import multiprocessing
import os
import sys
from pathlib import Path

import torch
from torch import distributed
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import untuned

ROWS, STEPS, BATCH, PROCESSES = 48, 12, 16, 2


def task():
    """Rows of three classes, a third of them with another label, and trusted rows."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (ROWS + 32,), generator=generator)
    features = torch.randn(ROWS + 32, 5, generator=generator) + 2 * torch.eye(3, 5)[labels]
    given = labels.clone()
    given[: ROWS // 3] = (labels[: ROWS // 3] + 1) % 3
    return features, given


def network():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(5, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
    )


def train(model, share, form="rows", one=False):
    """Train on a share (rank, processes) of each batch; the weights and the parameters.

    Trusted rows come in two halves, of even and of odd numbers, or all through one function.
    """
    features, labels = task()
    rank, processes = share
    size = BATCH // processes
    reweighter = untuned.Reweighter(model, rows=ROWS, form=form)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(2)
    for _ in range(STEPS):
        index = torch.randperm(ROWS, generator=generator)[:BATCH][rank * size : (rank + 1) * size]
        checked = ROWS + 2 * torch.randperm(16, generator=generator)
        checked = checked[rank * size : (rank + 1) * size]
        losses = cross_entropy(model(features[index]), labels[index], reduction="none")
        drawn = [checked, checked + 1]
        drawn = [torch.stack(drawn, dim=1).reshape(-1)] if one else drawn
        halves = [lambda at=at: cross_entropy(model(features[at]), labels[at]) for at in drawn]
        weights = reweighter(losses, index, halves)
        optimizer.zero_grad()
        (weights * losses).mean().backward()
        optimizer.step()
    found = {name: part.detach() for name, part in model.named_parameters()}
    return {"weights": reweighter.weights, "x": reweighter.state_dict()["form"]["x"]} | found


def plain():
    """Without batch norm, whose statistics are those of a process's own rows."""
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


def process(rank, out):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    torch.set_num_threads(1)
    store = distributed.FileStore(str(out / "store"), PROCESSES)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=PROCESSES)
    share = (rank, PROCESSES)
    found = {
        name: train(DistributedDataParallel(model()), share, form, name == "one")
        for name, model, form in (
            ("normed", network, "rows"), ("plain", plain, "rows"), ("one", plain, "rows"),
            ("loss", plain, "loss"), ("batch", plain, "batch"),
        )
    }  # fmt: skip
    torch.save(found, out / f"{rank}.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    fork = multiprocessing.get_context("fork")
    workers = [
        fork.Process(target=process, args=(rank, Path(sys.argv[1]))) for rank in range(PROCESSES)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sys.exit(max(abs(worker.exitcode or 0) for worker in workers))
