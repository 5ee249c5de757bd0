"""Draw one picture for each job, from a small run on data that scikit-learn bundles.

    python benchmarks/draw_jobs.py                    # all of them, into docs/jobs
    python benchmarks/draw_jobs.py argmin minimize    # these

The data and the seeds are fixed, so a picture changes only if the results do.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import numpy as np
from matplotlib import pyplot
from sklearn.datasets import load_diabetes, load_digits
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.model_selection import train_test_split

DOCS = Path(__file__).parent.parent / "docs"
OURS, WRONG, OTHERS = "#0072b2", "#d55e00", "#999999"


def panels(count: int, **options: Any) -> tuple[Any, Any]:
    figure, axes = pyplot.subplots(1, count, figsize=(9, 3), layout="constrained", **options)
    for each in np.atleast_1d(axes):
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


def digits() -> Any:
    X, y = load_digits(return_X_y=True)
    return train_test_split(X / 16, y, test_size=0.3, random_state=0)


def accuracy(X: Any, y: Any, X_test: Any, y_test: Any, weights: Any = None) -> float:
    model = LogisticRegression(max_iter=2000).fit(X, y, sample_weight=weights)
    return float(model.score(X_test, y_test))


def cleaning() -> Any:
    """Quality of right and wrong labels; test accuracy before and after."""
    from untuned.estimators import LabelCleaner

    X, X_test, right, y_test = digits()
    rng = np.random.default_rng(0)
    wrong = rng.random(len(right)) < 0.2
    labels = np.where(wrong, (right + rng.integers(1, 10, len(right))) % 10, right)
    cleaner = LabelCleaner(random_state=0).fit(X, labels)
    kept = np.setdiff1d(np.arange(len(labels)), cleaner.issues_)
    figure, (quality, before_after) = panels(2, width_ratios=[3, 2])
    quality.hist(
        [cleaner.quality_[~wrong], cleaner.quality_[wrong]], np.linspace(0, 1, 41), stacked=True,
        color=[OTHERS, WRONG], label=["right labels", "wrong labels"],
    )  # fmt: skip
    quality.set(xlabel="quality that the cleaner gives", ylabel="rows", yscale="log")
    quality.set_title("Digits with 20 % wrong labels", fontsize=11)
    quality.legend(frameon=False)
    scores = {
        "labels as they are": (accuracy(X, labels, X_test, y_test), OTHERS),
        "without the suspects": (accuracy(X[kept], labels[kept], X_test, y_test), OURS),
        "suggested labels": (accuracy(X, cleaner.suggested_, X_test, y_test), OURS),
        "all labels right": (accuracy(X, right, X_test, y_test), OTHERS),
    }
    for name, (score, colour) in scores.items():
        before_after.plot(score, name, "o", color=colour, markersize=9)
        before_after.annotate(f"{score:.3f}", (score, name), xytext=(8, -4), color=colour,
                              textcoords="offset points")  # fmt: skip
    before_after.invert_yaxis()
    before_after.grid(axis="x", alpha=0.3)
    before_after.set(xlim=(0.9, 0.98), xlabel="test rows right, logistic regression")
    before_after.set_title("Trained on", fontsize=11)
    return figure


def regularization() -> Any:
    """Coefficients with one penalty and with a penalty for each feature."""
    from untuned.estimators import BilevelRidge

    X, y = load_diabetes(return_X_y=True)
    X = np.hstack([X / X.std(axis=0), np.random.default_rng(2).standard_normal((len(X), 50))])
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=2)
    models = {
        "One penalty": (RidgeCV(np.logspace(-3, 4, 30)).fit(X, y), OTHERS),
        "A penalty for each feature": (BilevelRidge(random_state=0).fit(X, y), OURS),
    }
    figure, axes = panels(2, sharey=True)
    for panel, (name, (model, colour)) in zip(axes, models.items(), strict=True):
        panel.bar(np.arange(60), abs(model.coef_), color=colour)
        panel.axvline(9.5, color="black", linewidth=0.8)
        panel.set_title(f"{name}: test R2 {model.score(X_test, y_test):.3f}", fontsize=11)
        panel.set_xlabel("ten real features, then fifty of noise")
    axes[0].set_ylabel("size of coefficient")
    return figure


def coresets() -> Any:
    """Test accuracy against the rows kept, chosen and at random."""
    from untuned.estimators import CoresetSelector

    X, X_test, y, y_test = digits()
    sizes, chosen, random = (20, 40, 80, 160, 320), [], []
    for size in sizes:
        selector = CoresetSelector(size=size, random_state=0).fit(X, y)
        rows = selector.indices_
        chosen.append(accuracy(X[rows], y[rows], X_test, y_test, selector.weights_[rows]))
        scores = []
        for seed in range(10):
            rows = np.random.default_rng(seed).permutation(len(y))[:size]
            scores.append(accuracy(X[rows], y[rows], X_test, y_test))
        random.append(scores)
    figure, axes = panels(1)
    low, middle, high = np.quantile(random, [0.1, 0.5, 0.9], axis=1)
    axes.fill_between(sizes, low, high, color=OTHERS, alpha=0.3, linewidth=0)
    axes.plot(sizes, middle, color=OTHERS, marker="o", label="random rows: median, 10 to 90 %")
    axes.plot(sizes, chosen, color=OURS, marker="o", label="rows that CoresetSelector keeps")
    axes.axhline(accuracy(X, y, X_test, y_test), color="black", linestyle="--", linewidth=1,
                 label=f"all {len(y):,} rows")  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks(sizes, sizes)
    axes.minorticks_off()
    axes.set(xlabel="rows of digits kept", ylabel="test rows right")
    axes.legend(frameon=False, loc="lower right")
    return figure


def minimize() -> Any:
    """A run: the outer loss falls, and coefficients of useless features with it."""
    import jax.numpy as jnp

    import untuned

    rng = np.random.default_rng(0)
    truth = np.zeros(20)
    truth[:3] = 2.0
    X = rng.standard_normal((200, 20))
    t = np.sign(X @ truth + rng.standard_normal(200))

    def loss(x: Any, y: Any, batch: Any) -> Any:
        X, t = batch
        return jnp.logaddexp(0.0, -t * (X @ y)).sum()

    def penalized(x: Any, y: Any, batch: Any) -> Any:
        return loss(x, y, batch) + 0.5 * (jnp.exp(x) * y**2).sum()

    result = untuned.minimize(
        loss, penalized, x0=np.zeros(20), y0=np.zeros(20), eval_every=1,
        outer_data=(X[:100], t[:100]), inner_data=(X[100:], t[100:]),
    )  # fmt: skip
    rows = X[100:], t[100:]
    start = untuned.argmin(lambda x, y: penalized(x, y, rows), jnp.zeros(20), jnp.zeros(20))
    figure, (course, found) = panels(2)
    course.plot(result.history["step"], result.history["outer"], color=OURS)
    course.set(xlabel="step of auto", ylabel="f, the loss on rows held back")
    course.set_title(f"The run: {result.status}", fontsize=11)
    found.bar(np.arange(20) - 0.2, abs(start), 0.4, color=OTHERS, label="one penalty for all")
    found.bar(np.arange(20) + 0.2, abs(result.y), 0.4, color=OURS, label="penalties chosen")
    found.axvline(2.5, color="black", linewidth=0.8)
    found.set_xlabel("three features that matter, then seventeen that do not")
    found.set(ylabel="size of coefficient", xticks=[])
    found.legend(frameon=False)
    return figure


def argmin() -> Any:
    """A loss as a function of a penalty, and its slopes through `argmin`."""
    import jax
    import jax.numpy as jnp

    import untuned

    X, y = load_diabetes(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))[:120]
    X, t = jnp.asarray(X[rows] / X.std(axis=0)), jnp.asarray((y[rows] - y.mean()) / y.std())
    fit, held = slice(0, 40), slice(40, 120)

    def training(x: Any, weights: Any) -> Any:
        return ((X[fit] @ weights - t[fit]) ** 2).sum() + jnp.exp(x) * (weights**2).sum()

    def loss(x: Any) -> Any:
        weights = untuned.argmin(training, x, jnp.zeros(10))
        return ((X[held] @ weights - t[held]) ** 2).mean()

    at = np.linspace(-4, 8, 49)
    value, slope = jax.jit(loss), jax.jit(jax.grad(loss))
    values = [float(value(x)) for x in at]
    figure, axes = panels(1)
    axes.plot(at, values, color=OTHERS, label="loss on rows held back, at the argmin")
    for place in range(4, 49, 8):
        x, height, along = at[place], values[place], np.array([-0.9, 0.9])
        name = "its slope, by jax.grad through untuned.argmin" if place == 4 else None
        axes.plot(x + along, height + along * float(slope(x)), color=OURS, linewidth=2, label=name)
        axes.plot(x, height, "o", color=OURS, markersize=4)
    axes.set(xlabel="logarithm of the penalty of a ridge regression", ylabel="loss")
    axes.legend(frameon=False)
    return figure


PICTURES: dict[str, Callable[[], Any]] = {
    each.__name__: each for each in (cleaning, regularization, coresets, minimize, argmin)
}


def main() -> None:
    """Draw what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PICTURES))
    parser.add_argument("--out", type=Path, default=DOCS / "jobs")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in asked.names or PICTURES:
        PICTURES[name]().savefig(asked.out / f"{name}.png", dpi=100, metadata={"Software": None})


if __name__ == "__main__":
    main()
