"""The paper's constants and bounds as functions.

`Constants` holds what is known of a problem, `double_loop` and `single_loop` have the quantities
of D-TFBO and S-TFBO, and `estimate` probes the constants of a problem of your own.
`untuned_paper.theory` has problems whose constants are known, and compares runs with the bounds.
"""

from untuned.theory import double_loop, single_loop
from untuned.theory.constants import Constants
from untuned.theory.probes import Estimate, estimate

__all__ = [
    "Constants",
    "Estimate",
    "double_loop",
    "estimate",
    "single_loop",
]
