"""The demo: `untuned clean` on the bundled digits, 30 % of their labels made wrong on purpose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from untuned.commands import clean
from untuned.commands.job import Job
from untuned.commands.sources import Asked
from untuned.util import folder

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

CLASSES, CORRUPTED = 10, 0.3
TRUSTED, TEST = 300, 500
LABEL = "digit"


@dataclass(frozen=True)
class Digits:
    """The digits split three ways, with some training labels wrong."""

    train: pandas.DataFrame
    trusted: pandas.DataFrame
    test: pandas.DataFrame
    true_labels: np.ndarray  # of the training rows
    wrong: np.ndarray  # which training labels were changed


def load(seed: int) -> Digits:
    """The bundled digits, split and corrupted by `seed`."""
    from sklearn.datasets import load_digits

    table = load_digits(as_frame=True).frame.rename(columns={"target": LABEL})
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(table))
    trusted, test, train = (table.iloc[part] for part in np.split(order, [TRUSTED, TRUSTED + TEST]))
    labels = train[LABEL].to_numpy()
    given, wrong = corrupt(labels, CORRUPTED, CLASSES, rng)
    return Digits(train.assign(**{LABEL: given}), trusted, test, labels, wrong)


def corrupt(
    labels: np.ndarray, share: float, classes: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Labels of which a share is replaced by another class, and where that happened."""
    wrong = np.zeros(len(labels), bool)
    wrong[rng.permutation(len(labels))[: round(share * len(labels))]] = True
    shifts = rng.integers(1, classes, len(labels))
    return np.where(wrong, (labels + shifts) % classes, labels), wrong


def run(job: Job) -> tuple[dict[str, Any], str]:
    """Make the tables, clean them as any table, and compare with the truth.

    Gives the numbers and what `untuned clean` would print.
    """
    job.check()
    digits = load(job.seed)
    with folder.written_whole(job.out, job.overwrite) as target:
        for name, frame in (("train", digits.train), ("trusted", digits.trusted)):
            frame.to_csv(target / f"{name}.csv", index=False)
        done = clean.fit(job, target / "train.csv", Asked(trusted=target / "trusted.csv"))
        done.summary.update(truth(done, digits))
        figure(done, digits).savefig(target / "run.png", dpi=110)
        clean.write(target, job, done, Asked(trusted=job.out / "trusted.csv"))
    return done.summary, clean.words(done, job)


def truth(done: clean.Cleaned, digits: Digits) -> dict[str, Any]:
    """How well it went, which only someone who knows the true labels can tell."""
    from sklearn.linear_model import LogisticRegression

    ready, wrong = done.ready, digits.wrong
    # The model that believes all labels alike, and the cleaned one.
    before = LogisticRegression(max_iter=1000).fit(ready.X, ready.y)
    after = clean.model_of(done.found)
    X = ready.preparation.transform(digits.test.drop(columns=LABEL))
    accuracies = [
        float(np.mean(model.predict(X) == digits.test[LABEL])) for model in (before, after)
    ]
    lowest = np.argsort(done.found.quality, kind="stable")[: int(wrong.sum())]
    return {
        "wrong_labels": int(wrong.sum()),
        "wrong_labels_among_lowest_quality": int(wrong[lowest].sum()),
        "wrong_labels_among_suspects": int(wrong[done.found.issues].sum()),
        "test_accuracy_before": accuracies[0],
        "test_accuracy_after": accuracies[1],
    }


def figure(done: clean.Cleaned, digits: Digits) -> Figure:
    """The quality of each label, and the digits that are trusted least."""
    from matplotlib import pyplot as plt

    from untuned.run import plotting

    whole = plt.figure(figsize=(13, 4), layout="constrained")
    halves: Any = whole.subfigures(1, 2, width_ratios=[1, 1.6])
    left, right = halves

    panel = left.subplots()
    wrong, quality = digits.wrong, done.found.quality
    bins = np.linspace(0, 1, 31).tolist()
    panel.hist(quality[~wrong], bins, color=plotting.BLUE, alpha=0.7, label="right label")
    panel.hist(quality[wrong], bins, color=plotting.ORANGE, alpha=0.7, label="wrong label")
    panel.set(title="Quality of each training label", xlabel="quality", ylabel="rows")
    panel.legend(frameon=False, fontsize="small")
    plotting.tidy(panel)

    right.suptitle("Trusted least: label given, and what was true", fontsize="medium")
    pixels = digits.train.drop(columns=LABEL).to_numpy().reshape(-1, 8, 8)
    lowest = np.argsort(quality, kind="stable")[:14]
    for cell, row in zip(right.subplots(2, 7).flat, lowest, strict=True):
        cell.imshow(pixels[row], cmap="gray_r")
        given, true = digits.train[LABEL].iloc[row], digits.true_labels[row]
        colour = plotting.ORANGE if wrong[row] else plotting.BLUE
        cell.set_title(f"{given}, was {true}", color=colour, fontsize="small")
        cell.axis("off")
    return whole
