"""Options of XLA's compiler: how much effort to put into a program."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax

# XLA's older code generator takes half as long; its products are as quick and its gradients up to
# twice as slow. Without the optimizer code is three times slower, and there in a fifth of the time.
OLDER: dict[str, Any] = {"xla_cpu_use_fusion_emitters": False}
EFFORTS = {"full": {}, "half": OLDER, "least": OLDER | {"xla_backend_optimization_level": 0}}


@cache
def of_effort(effort: str) -> dict[str, Any]:
    """The options of an effort, as far as the XLA installed has them: they come and go."""
    return {name: value for name, value in EFFORTS[effort].items() if _is_known(name, value)}


@cache
def _is_known(name: str, value: Any) -> bool:
    if jax.default_backend() != "cpu":
        return False
    try:
        jax.jit(lambda: 0).lower().compile({name: value})
    except jax.errors.JaxRuntimeError as error:
        if "compile option" not in str(error):
            raise
        return False
    return True
