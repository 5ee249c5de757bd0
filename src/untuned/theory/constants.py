"""The constants of a problem in the paper's bounds, and what follows from them alone.

Assumptions 1 to 3 and Remark 3 of "Tuning-Free Bilevel Optimization". Labels such as lm:basic are
those of the paper's source.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from untuned.util.wording import brief

NOT_GIVEN = math.nan

MEANING = {
    "mu": "the strong convexity of g in y",
    "L_f1": "the Lipschitz constant of the gradient of f",
    "L_g1": "the Lipschitz constant of the gradient of g",
    "L_g2": "the Lipschitz constant of grad_xy g and grad_yy g",
    "C_fx": "a bound on |grad_x f|",
    "C_fy": "a bound on |grad_y f|",
    "C_gxy": "a bound on the norm of grad_xy g",
    "C_gyy": "a bound on the norm of grad_yy g",
    "phi_gap": "Phi(x0) - inf Phi",
    "y_gap": "the distance |y0 - y*(x0)|",
}


@dataclass(frozen=True)
class Constants:
    """What the theorems need to know about a problem and its start; the methods need none of it.

    Lipschitz constants are joint ones in (x, y). `y_gap` is not in the paper, whose bound on the
    first sub-loop leaves the start of y out (docs/theory.md, oddity 7); 0 says that y0 solves
    the inner problem at x0. v starts at zero, as it does in this library.
    """

    mu: float = NOT_GIVEN
    L_f1: float = NOT_GIVEN
    L_g1: float = NOT_GIVEN
    L_g2: float = NOT_GIVEN
    C_fx: float = NOT_GIVEN
    C_fy: float = NOT_GIVEN
    C_gxy: float = NOT_GIVEN
    C_gyy: float = NOT_GIVEN
    phi_gap: float = NOT_GIVEN
    y_gap: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            _check_constant(field.name, getattr(self, field.name))
        for name in ("L_g1", "C_gyy"):
            if getattr(self, name) < self.mu:
                raise ValueError(
                    f"{name} is {getattr(self, name):.6g} and mu is {self.mu:.6g}; expected "
                    f"{name} >= mu, since {MEANING[name]} is nowhere below {MEANING['mu']}."
                )


def _check_constant(name: str, value: Any) -> None:
    meaning = MEANING[name]
    if isinstance(value, float) and math.isnan(value):
        raise ValueError(f"{name} is missing or not a number; expected {meaning}, so give it.")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    positive = name == "mu"
    if not (is_number and math.isfinite(value) and (value > 0 if positive else value >= 0)):
        raise ValueError(
            f"{name} is {brief(value)}; expected a finite number "
            f"{'above zero' if positive else 'from zero up'}, {meaning}."
        )


def require_steps(T: Any) -> int:
    """T as a whole number from 1 up, or an error of one sentence."""
    if isinstance(T, bool) or not hasattr(T, "__index__") or T.__index__() < 1:
        raise ValueError(f"T is {brief(T)}; expected a whole number of steps from 1 up.")
    return T.__index__()


def require_accuracy(epsilon: Any) -> float:
    """epsilon as a number in (0, 1), as in Definition 2, or an error of one sentence."""
    is_number = isinstance(epsilon, int | float) and not isinstance(epsilon, bool)
    if not (is_number and 0 < epsilon < 1):
        raise ValueError(
            f"epsilon is {brief(epsilon)}; expected a number above 0 and below 1, the squared "
            "hypergradient norm to reach (Definition 2)."
        )
    return float(epsilon)


def sensitivity(k: Constants) -> float:
    """B = L_g2 C_fy / mu + L_f1, how fast grad_v R at v* changes with (x, y); lm:LS (b), (d)."""
    return k.L_g2 * k.C_fy / k.mu + k.L_f1


def l_y(k: Constants) -> float:
    """L_y = C_gxy / mu, the Lipschitz constant of y*(x); lm:basic (b)."""
    return k.C_gxy / k.mu


def l_phi(k: Constants) -> float:
    """L_Phi = (L_f1 + L_g2 C_fy / mu) (1 + C_gxy / mu)^2, the smoothness of Phi; lm:basic (a)."""
    return sensitivity(k) * (1 + l_y(k)) ** 2


def l_v_bar(k: Constants) -> float:
    """L_v-bar = L_f1 / mu + C_fy L_g2 / mu^2, of v-hat*(x, y) in y; lm:LS (e)."""
    return sensitivity(k) / k.mu


def l_v(k: Constants) -> float:
    """L_v = L_v-bar (1 + L_y), the Lipschitz constant of v*(x); lm:LS (e)."""
    return l_v_bar(k) * (1 + l_y(k))


def require_numbers(solver: Any) -> None:
    """Refuse start values that only a run knows: the theory needs them beforehand."""
    for name in ("alpha0", "beta0", "gamma0"):
        if getattr(solver, name) == "auto":
            raise ValueError(
                f"{type(solver).__name__} has {name}='auto', which only a run decides; the theory "
                f"expects a number, for example {name}=1.0."
            )
