"""The table of methods: what each costs and what it asks of the user."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from untuned import solvers


def show() -> None:
    """Print it, a line for each method at its defaults."""
    table = Table(
        title="Methods at their defaults: evaluations per step of x",
        caption="Hv and Jv: products with grad_yy g and grad_xy g. Numbers that vary are "
        "means; batches (inner/outer) are the most that a step draws.",
        box=box.SIMPLE_HEAD,  # without lines, 80 columns hold the longest name
        pad_edge=False,
        collapse_padding=True,
    )
    for heading in ("name", "loops", "grad f", "grad g", "Hv", "Jv", "batches"):
        table.add_column(heading, no_wrap=True)
    table.add_column("to tune", overflow="fold")  # a name cut short could not be typed
    for name in solvers.names():
        solver = solvers.get(name)()
        counts = ("loop" if count is None else f"{count:g}" for count in solver.cost)
        batches = f"{solver.inner_draws}/{solver.outer_draws}"
        table.add_row(name, solver.loops, *counts, batches, ", ".join(solver.to_tune) or "nothing")
    Console().print(table)
