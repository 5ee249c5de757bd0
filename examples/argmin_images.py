"""A regularizer for images, learned by denoising: total variation, then a small field of experts.

    y*(x) = argmin_y |y - noisy|^2 / 2 + sum_k exp(s_k) sum_i sqrt((f_k * y)_i^2 + 1e-3)

Total variation has two filters f_k (differences across and down) and one strength s. The field of
experts learns its filters, and a strength for each. The gradient of the error on crops of
scikit-learn's pictures finds x. The error on other crops is compared with that of total variation
at the best single strength, which a search finds on those very crops.

python examples/argmin_images.py [--small]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize, minimize_scalar
from sklearn.datasets import load_sample_images
from torch.nn.functional import conv2d

import untuned

NOISE, SMOOTH, SIZE = 0.1, 1e-3, 3  # deviation of the noise, of what is 1; width of a filter
Tensor = torch.Tensor


def crops(size: int, corners: list[tuple[int, int]], seed: int) -> tuple[Tensor, Tensor]:
    """Grey crops of both pictures, and the same with noise."""
    pictures = [picture.mean(2) / 255 for picture in load_sample_images().images]
    cut = [p[a : a + size, b : b + size] for p in pictures for a, b in corners]
    clean = torch.tensor(np.stack(cut))[:, None]
    return clean, clean + NOISE * torch.tensor(
        np.random.default_rng(seed).standard_normal(clean.shape)
    )


def differences() -> Tensor:
    """The two filters of total variation."""
    filters = torch.zeros(2, 1, SIZE, SIZE).double()
    filters[:, 0, 1, 1] = 1
    filters[0, 0, 1, 2] = filters[1, 0, 2, 1] = -1
    return filters


def inner(x: dict[str, Tensor], y: Tensor, noisy: Tensor) -> Tensor:
    """The distance from the noisy crops, and what the experts say of y."""
    responses = conv2d(torch.nn.functional.pad(y, (1, 1, 1, 1), mode="replicate"), x["filters"])
    experts = torch.sqrt(responses**2 + SMOOTH).sum((0, 2, 3))
    return ((y - noisy) ** 2).sum() / 2 + (x["strengths"].exp() * experts).sum()


def error(x: dict[str, Tensor], clean: Tensor, noisy: Tensor) -> Tensor:
    return ((untuned.argmin(inner, x, noisy, data=noisy) - clean) ** 2).mean()


def psnr(mean_square: float) -> float:
    return float(-10 * np.log10(mean_square))


def fitted(start: np.ndarray, x_of: Callable, data: Any, steps: int) -> np.ndarray:
    """The numbers of x with the least error, by SciPy with our gradient."""

    def value_and_slope(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        at = torch.tensor(numbers, requires_grad=True)
        value = error(x_of(at), *data).log()
        return value.item(), torch.autograd.grad(value, at)[0].numpy()

    found = minimize(
        value_and_slope, start, jac=True, method="L-BFGS-B", options={"maxiter": steps}
    )
    return np.asarray(found.x)


def total_variation(numbers: Tensor) -> dict[str, Tensor]:
    return {"filters": differences(), "strengths": numbers.expand(2)}


def field_of_experts(numbers: Tensor) -> dict[str, Tensor]:
    """Filters that do not see how bright a crop is, and their strengths."""
    strengths, filters = numbers.reshape(-1, SIZE**2 + 1).split([1, SIZE**2], 1)
    filters = filters - filters.mean(1, keepdim=True)
    return {"filters": filters.reshape(-1, 1, SIZE, SIZE), "strengths": strengths[:, 0]}


def start(strength: float, experts: int) -> np.ndarray:
    """Total variation, and experts that say next to nothing yet."""
    rng = np.random.default_rng(0)
    known = np.c_[np.full(2, strength), differences().reshape(2, -1).numpy()]
    rest = rng.standard_normal((experts - 2, SIZE**2)) / SIZE
    return np.vstack([known, np.c_[np.full(experts - 2, strength - 2), rest]]).reshape(-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="in seconds, and it learns less")
    small = parser.parse_args().small
    torch.set_num_threads(1)
    size, experts, steps = (12, 3, 4) if small else (32, 6, 60)
    corners = [(100, 200), (200, 100), (40, 420), (330, 350), (20, 20), (280, 30)]
    train = crops(size, corners[: 3 if small else 6], 0)
    test = crops(size, [(150, 300), (250, 250), (300, 500), (60, 60)], 1)
    strength = fitted(np.array([-4.0]), total_variation, train, 15)
    numbers = fitted(start(strength[0], experts), field_of_experts, train, steps)
    search = minimize_scalar(
        lambda s: error(total_variation(torch.tensor([s])), *test).item(),
        bounds=(-6, 0), method="bounded",
    )  # fmt: skip
    for name, mean_square in (
        ("noisy", ((test[1] - test[0]) ** 2).mean().item()),
        ("total variation, by gradient", error(total_variation(torch.tensor(strength)), *test)),
        ("total variation, by search on the test crops", search.fun),
        ("field of experts", error(field_of_experts(torch.tensor(numbers)), *test)),
    ):
        print(f"PSNR of {name}: {psnr(float(mean_square)):.2f}")


if __name__ == "__main__":
    main()
