"""Three problems with an argmin inside, each in a few lines, and the answer that a search gives.

python examples/argmin_layers.py [--small]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.svm import SVC

import untuned


def lasso_strength() -> tuple[float, float]:
    """The strength of a lasso by the gradient of its validation loss, and by a grid."""
    features, targets = (torch.tensor(part) for part in load_diabetes(return_X_y=True))
    features = (features - features.mean(0)) / features.std(0)
    targets = (targets - targets.mean()) / targets.std()
    train, held = slice(0, None, 2), slice(1, None, 2)
    squares = lambda x, y, data: ((data[0] @ y - data[1]) ** 2).mean() / 2

    def loss(log_strength: torch.Tensor) -> torch.Tensor:
        y = untuned.argmin(
            squares, log_strength, torch.zeros(10).double(), l1=log_strength.exp(),
            data=(features[train], targets[train]),
        )  # fmt: skip
        return squares(None, y, (features[held], targets[held]))

    def value_and_slope(log_strength: np.ndarray) -> tuple[float, np.ndarray]:
        x = torch.tensor(log_strength[0], requires_grad=True)
        value = loss(x)
        return value.item(), np.array([torch.autograd.grad(value, x)[0].item()])

    # The loss has several valleys, as supports change.
    runs = [
        minimize(value_and_slope, [start], jac=True, method="L-BFGS-B", bounds=[(-8, 0)])
        for start in (-6.0, -4.0, -2.0)
    ]
    found = min(runs, key=lambda run: run.fun)
    grid = min(loss(torch.tensor(x)).item() for x in np.linspace(-8, 0, 81))
    return float(found.fun), grid


def svm_dual(rows: int) -> tuple[float, float]:
    """A support vector machine as the quadratic program of its dual; agreement with libsvm."""
    features, labels = load_breast_cancer(return_X_y=True)
    features = (features - features.mean(0)) / features.std(0)
    features, signs = features[:rows], 2.0 * labels[:rows] - 1
    kernel = np.exp(-((features[:, None] - features[None]) ** 2).sum(-1) / 30)
    unit = np.eye(rows)
    y = untuned.quadratic_program(
        signs[:, None] * kernel * signs + 1e-9 * unit, -np.ones(rows), signs[None], np.zeros(1),
        np.vstack([unit, -unit]), np.concatenate([np.ones(rows), np.zeros(rows)]),
    )  # fmt: skip
    reference = SVC(C=1.0, gamma=1 / 30, tol=1e-10).fit(features, signs)
    theirs = np.zeros(rows)
    theirs[reference.support_] = abs(reference.dual_coef_[0])
    return float(abs(y).max()), float(abs(y - theirs).max())


def equilibrium(steps: int) -> tuple[float, float]:
    """A layer y = tanh(W y + U u + b), trained through its fixed point; loss before and after."""
    rng = np.random.default_rng(0)
    inputs = torch.tensor(rng.standard_normal((64, 2)))
    targets = torch.sin(2 * inputs[:, 0]) * inputs[:, 1]
    sizes = {"W": (6, 6), "U": (6, 2), "b": (6,), "out": (6,)}
    x = {
        name: torch.tensor(0.4 * rng.standard_normal(size) / size[0] ** 0.5, requires_grad=True)
        for name, size in sizes.items()
    }

    def layer(x: dict[str, Any], y: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x["W"] @ y + x["U"] @ data + x["b"])

    distance = lambda x, y, data: ((y - layer(x, y, data)) ** 2).sum() / 2

    def loss() -> torch.Tensor:
        fixed_point = lambda data: untuned.argmin(distance, x, torch.zeros(6).double(), data=data)
        return ((torch.func.vmap(fixed_point)(inputs) @ x["out"] - targets) ** 2).mean()

    optimizer = torch.optim.Adam(x.values(), lr=0.03)
    first = loss().item()
    for _ in range(steps):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    return first, loss().item()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="a minute less")
    small = parser.parse_args().small
    torch.set_num_threads(1)
    print("lasso, validation loss: by gradient {:.6f}, by a grid {:.6f}".format(*lasso_strength()))
    largest, off = svm_dual(60 if small else 200)
    print(f"SVM by its dual: largest weight {largest:.3f}, farthest from libsvm {off:.1e}")
    first, last = equilibrium(5 if small else 300)
    print(f"equilibrium layer, loss: {first:.4f} before, {last:.4f} after")


if __name__ == "__main__":
    main()
