"""A step of S-TFBO on JAX against its bare derivative evaluations, on Covtype."""

from __future__ import annotations

import covtype
from common import Row, beside, main, ratio_row


def measure(quick: bool) -> list[Row]:
    """Ratios of time per step, full batch and at batch 64."""
    problem = covtype.problem()
    rows = []
    for batch_size, steps, target in ((None, 8, 1.10), (64, 4096, 1.30)):
        bare = covtype.bare_evaluations(problem, steps, batch_size)
        rounds = 7 if quick else 41
        times = beside(problem, "s-tfbo", {"bare": bare}, steps, rounds, batch_size=batch_size)
        name = f"JAX S-TFBO step / bare derivatives, Covtype, batch {batch_size or 'full'}"
        rows.append(ratio_row(name, target, times["ours"], times["bare"]))
    return rows


if __name__ == "__main__":
    main(measure)
