"""Sparse coding: a dictionary of patches learned through the codes that it gives.

    code_i(D) = argmin_y |patch_i - D^T y|^2 / 2 + strength sum_j |y_j|,
    min_D mean_i |patch_i - D^T code_i(D)|^2 / 2 + strength |code_i(D)|_1,

One call finds all codes, each with its own support. The same objective on other patches is compared
with that of a random dictionary and of scikit-learn's `MiniBatchDictionaryLearning`, whose
dictionary is given the same codes.

python examples/sparse_coding.py [--small]
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from sklearn.datasets import load_sample_images
from sklearn.decomposition import MiniBatchDictionaryLearning
from sklearn.feature_extraction.image import extract_patches_2d

import untuned

STRENGTH, WIDTH = 0.1, 6
Tensor = torch.Tensor


def patches(count: int, seed: int) -> Tensor:
    """Grey patches of both pictures, each less its mean and of deviation one on average."""
    pictures = [picture.mean(2) / 255 for picture in load_sample_images().images]
    cut = np.concatenate(
        [extract_patches_2d(p, (WIDTH, WIDTH), max_patches=count // 2, random_state=seed)
         for p in pictures]
    ).reshape(-1, WIDTH**2)  # fmt: skip
    cut -= cut.mean(1, keepdims=True)
    return torch.tensor(cut / cut.std())


def lengthened(dictionary: Tensor) -> Tensor:
    """Atoms of length one."""
    return dictionary / dictionary.norm(dim=1, keepdim=True)


def rebuilding(x: Tensor, y: Tensor, patch: Tensor) -> Tensor:
    return ((patch - y @ x) ** 2).sum() / 2


def codes(dictionary: Tensor, rows: Tensor) -> Tensor:
    """The codes of all patches, in one call."""
    zeros = torch.zeros(len(dictionary), dtype=rows.dtype)
    one = lambda patch: untuned.argmin(rebuilding, dictionary, zeros, data=patch, l1=STRENGTH)
    return torch.func.vmap(one)(rows)


def objective(dictionary: Tensor, rows: Tensor) -> Tensor:
    found = codes(dictionary, rows)
    squares = ((rows - found @ dictionary) ** 2).sum(1) / 2
    return (squares + STRENGTH * found.abs().sum(1)).mean()


def learned(start: Tensor, rows: Tensor, steps: int) -> Tensor:
    """The dictionary, by Adam with our gradient."""
    x = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([x], lr=0.02)
    for _ in range(steps):
        optimizer.zero_grad()
        objective(lengthened(x), rows).backward()
        optimizer.step()
    return lengthened(x.detach())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="in seconds, and it learns less")
    small = parser.parse_args().small
    torch.set_num_threads(1)
    count, atoms, steps = (60, 10, 6) if small else (600, 48, 60)
    train, test = patches(count, 0), patches(count, 1)
    start = lengthened(torch.tensor(np.random.default_rng(0).standard_normal((atoms, WIDTH**2))))
    theirs = MiniBatchDictionaryLearning(atoms, alpha=STRENGTH, random_state=0).fit(train.numpy())
    for name, dictionary in (
        ("random", start),
        ("learned through its codes", learned(start, train, steps)),
        ("of scikit-learn", lengthened(torch.tensor(theirs.components_))),
    ):
        print(f"objective on other patches, dictionary {name}: {objective(dictionary, test):.4f}")


if __name__ == "__main__":
    main()
