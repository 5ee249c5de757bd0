"""Published tuned values of the baselines, the grids behind them, and how a setting is named.

A setting is "default", "tuned" (the published values), "all rows" (instead of minibatches), or
hyperparameters written out, such as "step_size=0.5 outer_ratio=0.01". The published pairs are
those of the field's benchmark; they were found with other code, so they are a fair start, not the
optimum here.
"""

from __future__ import annotations

import dataclasses
from itertools import product
from typing import Any, NamedTuple

from untuned import solvers
from untuned.util.wording import brief

DEFAULT, TUNED = "default", "tuned"
ALL_ROWS = "all rows"  # for `auto`, which has a form for them; the comparison is on minibatches

# The paper's form of D-TFBO in these experiments (appendix B): ten steps in each sub-loop.
IN_THE_PAPER: dict[str, dict[str, Any]] = {"d-tfbo": {"inner_steps": 10, "linear_steps": 10}}

# Step size and outer ratio by problem.
PUBLISHED: dict[str, dict[str, tuple[float, float]]] = {
    "covtype": {
        "amigo": (0.03125, 0.1),
        "bsa": (0.5, 0.01),
        "fsla": (1.0, 0.01),
        "mrbo": (1.0, 0.01),
        "soba": (1.0, 0.01),
        "stocbio": (0.0625, 0.01),
        "sustain": (0.5, 0.01),
        "ttsa": (0.5, 0.01),
        "vrbo": (0.25, 0.01),
    },
    "ijcnn1": {
        "amigo": (0.125, 0.3162),
        "bsa": (0.5, 0.01),
        "fsla": (0.03125, 0.01),
        "mrbo": (0.5, 0.0316),
        "saba": (0.125, 1.0),
        "soba": (0.03125, 0.01),
        "stocbio": (0.125, 1.0),
        "sustain": (0.5, 0.1),
        "ttsa": (0.5, 0.0316),
        "vrbo": (0.0625, 1.0),
    },
    "mnist-0.5": {
        "amigo": (0.001, 1e-5),
        "bsa": (0.1, 1e-5),
        "f2sa": (0.1, 1e-4),
        "fsla": (1.0, 1e-4),
        "mrbo": (0.1, 1e-4),
        "saba": (0.1, 1e-3),
        "soba": (1.0, 1e-4),
        "stocbio": (0.01, 1e-5),
        "sustain": (0.1, 1e-4),
        "ttsa": (0.1, 1e-5),
        "vrbo": (0.1, 1e-4),
    },
}
PUBLISHED["mnist-0.7"] = PUBLISHED["mnist-0.5"] | {"fsla": (1.0, 1e-5), "saba": (0.01, 1e-4)}
PUBLISHED["mnist-0.9"] = PUBLISHED["mnist-0.5"] | {
    "fsla": (1.0, 1e-3),
    "mrbo": (1.0, 0.01),
    "soba": (1.0, 1e-3),
    "vrbo": (0.1, 1e-3),
}
for _share in ("0.7", "0.9"):
    del PUBLISHED[f"mnist-{_share}"]["f2sa"]  # published for half of the labels only

# Problems without values of their own take those of the nearest problem that has some.
SAME_AS = {"covtype-classes": "covtype", "mnist-0.1": "mnist-0.5", "digits-cleaning": "mnist-0.5"}

# VRBO looks at all rows once in half an epoch of both sets, counted in batches.
VRBO_PERIOD = 0.5
F2SA_DELTA = 1.0


class Grid(NamedTuple):
    """The pairs a published search went through."""

    step_sizes: tuple[float, ...]
    outer_ratios: tuple[float, ...]


HALVES = tuple(2.0**k for k in range(-5, 1))
TENTHS = tuple(10.0**k for k in range(-5, 1))
GRIDS = {
    "covtype": Grid(HALVES, (0.01, 0.1, 1.0, 10.0)),
    "ijcnn1": Grid(HALVES[:5], tuple(10 ** (k / 2) for k in range(-4, 1))),
    "mnist-0.5": Grid(TENTHS[2:], TENTHS),
    "mnist-0.7": Grid(TENTHS[2:], TENTHS),
    "mnist-0.9": Grid(TENTHS[2:], TENTHS),
}
# For the methods without step sizes: how much do their start values matter? No bill counts these.
ALPHA0 = (1e-5, 1e-3, 0.1, 1.0, 10.0)  # from the scale of MNIST's hypergradients
BETA0 = (1e-3, 0.1, 1.0, 10.0, 100.0)  # and gamma0


def _family(problem: str) -> str:
    return SAME_AS.get(problem, problem)


def settings(method: str, problem: str) -> list[str]:
    """The settings a comparison shows: two for a method that must be tuned, if values exist."""
    if method == "auto":
        return [ALL_ROWS, DEFAULT]
    is_published = method in PUBLISHED.get(_family(problem), {})
    return [TUNED, DEFAULT] if is_published else [DEFAULT]


def grid(method: str, problem: str) -> list[str]:
    """The settings a search goes through; none for a method with nothing to choose."""
    solver = solvers.get(method)
    if "step_size" in solver.to_tune:
        pairs = GRIDS.get(_family(problem), GRIDS["covtype"])
        names, values = ("step_size", "outer_ratio"), product(*pairs)
        return [written(zip(names, pair, strict=True)) for pair in values]
    if "alpha0" in {field.name for field in dataclasses.fields(solver)}:
        return [
            written({"alpha0": alpha, "beta0": other, "gamma0": other}.items())
            for alpha, other in product(ALPHA0, BETA0)
        ]
    return []


def is_billed(method: str) -> bool:
    """Whether users of a method must pay for its grid; other grids are for our curiosity."""
    return bool(solvers.get(method).to_tune)


def written(options: Any) -> str:
    """Hyperparameters as a setting."""
    return " ".join(f"{name}={value:.6g}" for name, value in options)


def solver(method: str, setting: str, problem: str, rows: int, batch_size: int) -> Any:
    """A method at a setting. `rows`, of both data sets, say how long VRBO's period is."""
    options = dict(IN_THE_PAPER.get(method, {}))
    if setting == TUNED:
        values = PUBLISHED.get(_family(problem), {})
        if method not in values:
            raise ValueError(
                f"No tuned values of {method!r} are published for the problem {problem!r}; "
                f"expected one of {', '.join(sorted(values)) or 'none'}, or the setting 'default'."
            )
        options["step_size"], options["outer_ratio"] = values[method]
        if method == "vrbo":
            options["period"] = max(1, int(rows * VRBO_PERIOD / batch_size))
        if method == "f2sa":
            options["delta"] = F2SA_DELTA
    elif setting not in (DEFAULT, ALL_ROWS):
        options |= _parsed(setting)
    return solvers.get(method)(**options)


def _parsed(setting: str) -> dict[str, float]:
    try:
        # benchopt's command line turns every equals sign inside a value into a colon.
        pairs = [part.replace(":", "=").split("=") for part in setting.split()]
        return {name: float(value) for name, value in pairs}
    except ValueError:
        raise ValueError(
            f"setting={brief(setting)} cannot be read; expected 'default', 'tuned', or "
            "hyperparameters such as 'step_size=0.5 outer_ratio=0.01'."
        ) from None
