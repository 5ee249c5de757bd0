"""The paper's constants and bounds as functions: what is promised, and what runs do.

`Constants` holds what is known of a problem, `double_loop` and `single_loop` have the quantities
of D-TFBO and S-TFBO, `problems` has problems whose constants are known, `checks` compares their
runs with the bounds, and `estimate` probes the constants of a problem of your own.
"""

from untuned.theory import checks, double_loop, paper_formulas, problems, single_loop, trajectory
from untuned.theory.constants import Constants
from untuned.theory.probes import Estimate, estimate

__all__ = [
    "Constants",
    "Estimate",
    "checks",
    "double_loop",
    "estimate",
    "paper_formulas",
    "problems",
    "single_loop",
    "trajectory",
]
