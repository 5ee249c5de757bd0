"""The demo: find wrong labels in the bundled digits, 30 % of them made wrong on purpose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from untuned import solvers
from untuned.experiments import cleaning
from untuned.experiments.experiment import Rows, softmax
from untuned.flat import FlatProblem
from untuned.problem import build
from untuned.result import Result
from untuned.run import minimize

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

CLASSES, CORRUPTED = 10, 0.3
TRUSTED, TEST = 300, 500
STEPS = 1500


@dataclass(frozen=True)
class Digits:
    """The digits split three ways, with some training labels wrong."""

    train: Rows
    trusted: Rows
    test: Rows
    true_labels: np.ndarray  # of the training rows
    wrong: np.ndarray  # which training labels were changed


@dataclass(frozen=True)
class Outcome:
    """What the demo found."""

    digits: Digits
    result: Result
    validation_loss: tuple[float, float]  # before and after, mean over trusted rows
    test_accuracy: tuple[float, float]
    quality: np.ndarray  # the cleaned model's probability of the label each training row has
    found: int  # wrong labels among as many of lowest quality as there are wrong labels

    @property
    def weights(self) -> np.ndarray:
        from scipy.special import expit

        return expit(np.asarray(self.result.x))

    def summary(self) -> dict[str, Any]:
        """The numbers, ready for JSON."""
        wrong = int(self.digits.wrong.sum())
        return {
            "training_rows": len(self.digits.wrong),
            "wrong_labels": wrong,
            "wrong_labels_among_lowest_quality": self.found,
            "validation_loss_before": self.validation_loss[0],
            "validation_loss_after": self.validation_loss[1],
            "test_accuracy_before": self.test_accuracy[0],
            "test_accuracy_after": self.test_accuracy[1],
            "status": self.result.status,
            "message": self.result.message,
            "steps": self.result.steps,
            "seconds": self.result.seconds,
            "compile_seconds": self.result.compile_seconds,
            "counts": self.result.counts,
        }


def load(seed: int) -> Digits:
    """The bundled digits, split and corrupted by `seed`."""
    from sklearn.datasets import load_digits

    features, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(labels))
    trusted, test, train = np.split(order, [TRUSTED, TRUSTED + TEST])
    given, wrong = cleaning.corrupt(labels[train], CORRUPTED, CLASSES, rng)
    scaled = features / 16  # pixels run from 0 to 16
    return Digits(
        train=cleaning.rows(scaled[train], given),
        trusted=cleaning.rows(scaled[trusted], labels[trusted]),
        test=cleaning.rows(scaled[test], labels[test]),
        true_labels=labels[train],
        wrong=wrong,
    )


def run(method: str, seed: int, max_seconds: float | None, progress: bool) -> Outcome:
    """Load, clean, and compare the model before and after."""
    # The paper's practical form of D-TFBO; every other method runs as it comes.
    is_dtfbo = method == "d-tfbo"
    options = {"inner_steps": 10, "linear_steps": 10} if is_dtfbo else {}
    solver = solvers.get(method)(**options)
    digits = load(seed)
    x0 = np.zeros(len(digits.wrong), np.float32)
    y0 = np.zeros((digits.train.features.shape[1], CLASSES), np.float32)
    result = minimize(
        cleaning.outer,
        cleaning.inner,
        x0,
        y0,
        method=solver,
        outer_data=digits.trusted,
        inner_data=digits.train,
        max_steps=STEPS,
        max_seconds=max_seconds,
        seed=seed,
        progress=progress,
    )
    before = _trained_with_equal_weights(digits, x0, y0)
    quality = np.exp(-np.asarray(softmax(result.y, digits.train)))
    lowest = np.argsort(quality, kind="stable")[: int(digits.wrong.sum())]
    return Outcome(
        digits=digits,
        result=result,
        validation_loss=(_mean_loss(before, digits), _mean_loss(result.y, digits)),
        test_accuracy=(
            cleaning.accuracy(before, digits.test),
            cleaning.accuracy(result.y, digits.test),
        ),
        quality=quality,
        found=int(digits.wrong[lowest].sum()),
    )


def _trained_with_equal_weights(digits: Digits, x0: np.ndarray, y0: np.ndarray) -> np.ndarray:
    """The model that believes all labels alike: the inner solution at x0."""
    problem = build(cleaning.outer, cleaning.inner, x0, y0, digits.trusted, digits.train)
    flat = FlatProblem(problem)
    return problem.outward(flat.tree_y(flat.solve_inner(flat.x0, flat.y0)))


def _mean_loss(weights: np.ndarray, digits: Digits) -> float:
    return float(np.mean(softmax(weights, digits.trusted)))


def rows_frame(outcome: Outcome) -> pandas.DataFrame:
    """One line per training row: quality, weight, labels, and whether it was made wrong."""
    import pandas

    digits = outcome.digits
    columns = {
        "quality": outcome.quality,
        "weight": outcome.weights,
        "given_label": digits.train.labels,
        "true_label": digits.true_labels,
        "wrong": digits.wrong,
    }
    return pandas.DataFrame(columns).rename_axis("row").reset_index()


def figure(outcome: Outcome) -> Figure:
    """The run above; below, the quality of each label and the digits it trusts least."""
    from matplotlib import pyplot as plt

    from untuned import plotting

    whole = plt.figure(figsize=(13, 7.6), layout="constrained")
    halves: Any = whole.subfigures(2, 1)
    plotting.draw_run(halves[0].subplots(1, 3), outcome.result.history)
    left, right = halves[1].subfigures(1, 2, width_ratios=[1, 1.6])

    panel = left.subplots()
    wrong, quality = outcome.digits.wrong, outcome.quality
    bins = np.linspace(0, 1, 31).tolist()
    panel.hist(quality[~wrong], bins, color=plotting.BLUE, alpha=0.7, label="right label")
    panel.hist(quality[wrong], bins, color=plotting.ORANGE, alpha=0.7, label="wrong label")
    panel.set(
        title="Quality of each training label",
        xlabel="probability of the label given",
        ylabel="rows",
    )
    panel.legend(frameon=False, fontsize="small")
    plotting.tidy(panel)

    right.suptitle("Trusted least: label given, and what was true", fontsize="medium")
    lowest = np.argsort(quality, kind="stable")[:14]
    for cell, row in zip(right.subplots(2, 7).flat, lowest, strict=True):
        cell.imshow(outcome.digits.train.features[row, :-1].reshape(8, 8), cmap="gray_r")
        given, true = outcome.digits.train.labels[row], outcome.digits.true_labels[row]
        colour = plotting.ORANGE if wrong[row] else plotting.BLUE
        cell.set_title(f"{given}, was {true}", color=colour, fontsize="small")
        cell.axis("off")
    return whole
