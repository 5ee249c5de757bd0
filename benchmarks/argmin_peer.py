"""The problems of argmin.py by jaxopt 0.8.5, forward and backward in the strength.

python argmin_peer.py COUNT ROUNDS      in an environment of its own, with jaxopt
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import jaxopt
import numpy as np

jax.config.update("jax_enable_x64", True)
ROWS, VARIABLES = 40, 20


def ridge(y: Any, x: Any, features: Any, targets: Any) -> Any:
    return ((features @ y - targets) ** 2).sum() + jnp.exp(x) * (y**2).sum()


def logistic(y: Any, x: Any, features: Any, targets: Any) -> Any:
    margins = jnp.sign(targets) * (features @ y)
    return jnp.logaddexp(0, -margins).sum() + jnp.exp(x) * (y**2).sum()


def newton(fun: Any, *given: Any) -> Any:
    """The judge of gradients: Newton steps until nothing changes, and the implicit formula."""
    y = jnp.zeros(VARIABLES)
    for _ in range(30):
        y = y - jnp.linalg.solve(jax.hessian(fun)(y, *given), jax.grad(fun)(y, *given))
    cross = jax.jacfwd(jax.grad(fun), 1)(y, *given)
    return -2 * cross @ jnp.linalg.solve(jax.hessian(fun)(y, *given), y)


def main() -> None:
    count, rounds = int(sys.argv[1]), int(sys.argv[2])
    rng = np.random.default_rng(0)
    features, targets = (
        rng.standard_normal((count, ROWS, VARIABLES)),
        rng.standard_normal((count, ROWS)),
    )
    given = [jnp.asarray(part) for part in (rng.uniform(-3, 1, count), features, targets)]
    found = {}
    for kind, fun in (("ridge", ridge), ("logistic", logistic)):
        some = [part[:20] for part in given]
        exact = jax.vmap(lambda *given, fun=fun: newton(fun, *given))(*some)
        for name, solver in (
            ("LBFGS", jaxopt.LBFGS(fun, tol=1e-10, maxiter=500)),
            ("BFGS", jaxopt.BFGS(fun, tol=1e-10, maxiter=500)),
        ):
            loss = lambda x, f, t, solver=solver: (
                solver.run(jnp.zeros(VARIABLES), x, f, t).params ** 2
            ).sum()
            stack = jax.jit(jax.vmap(jax.grad(loss)))
            slopes = jax.block_until_ready(stack(*given))
            times = []
            for _ in range(rounds):
                start = time.process_time()
                jax.block_until_ready(stack(*given))
                times.append(time.process_time() - start)
            found[f"{kind} {name}"] = min(times)
            error = jnp.abs(slopes[:20] - exact) / jnp.abs(exact)
            found[f"{kind} {name} error"] = float(error.max())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
