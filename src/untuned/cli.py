"""The command line. Bad input ends with one sentence on standard error and exit code 2."""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from untuned import folder
from untuned.experiments.reproduce import RECIPES
from untuned.experiments.reproduce import run as recipe

app = typer.Typer(
    name="untuned",
    help="Bilevel optimization without step sizes.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
)

Out = Annotated[Path, typer.Option(help="Folder for what is written.")]
Method = Annotated[str, typer.Option(help="Name of the method.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.", min=0)]
MaxSeconds = Annotated[float | None, typer.Option(help="Time limit of the optimization.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing folder.")]


@app.callback(invoke_without_command=True)
def _main(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if show_version:
        typer.echo(version("untuned"))
        raise typer.Exit


@app.command()
def demo(
    out: Out = Path("untuned-demo"),
    method: Method = "auto",
    seed: Seed = 0,
    max_seconds: MaxSeconds = None,
    overwrite: Overwrite = False,
) -> None:
    """Find wrong labels in scikit-learn's bundled digits, 30 % of them made wrong on purpose.

    Example: `untuned demo --out demo --seed 1`
    """
    with folder.written_whole(out, overwrite) as target:
        from untuned.experiments import demo as experiment

        outcome = experiment.run(method, seed, max_seconds, progress=True)
        summary = outcome.summary() | {"method": method, "seed": seed}
        (target / "result.json").write_text(json.dumps(summary, indent=2) + "\n")
        outcome.result.history.to_frame().to_csv(target / "history.csv", index=False)
        experiment.rows_frame(outcome).to_csv(target / "rows.csv", index=False)
        experiment.figure(outcome).savefig(target / "run.png", dpi=110)
    _print_demo(summary, out)


def _print_demo(summary: dict, out: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("", "before", "after", title="Digits with 30 % wrong labels")
    loss = [summary[f"validation_loss_{when}"] for when in ("before", "after")]
    hits = [summary[f"test_accuracy_{when}"] for when in ("before", "after")]
    table.add_row("validation loss", *(f"{value:.3f}" for value in loss))
    table.add_row("test accuracy", *(f"{value:.1%}" for value in hits))
    console = Console()
    console.print(table)
    wrong, found = summary["wrong_labels"], summary["wrong_labels_among_lowest_quality"]
    console.print(
        f"{found} of the {wrong} wrong labels are among the {wrong} of lowest quality, of "
        f"{summary['training_rows']} in all ({found / wrong:.0%}).\n"
        f"{summary['message']}\n"
        f"Picture of the run: {out / 'run.png'}\n"
        f"All numbers: {out / 'result.json'}, {out / 'history.csv'}, {out / 'rows.csv'}",
        highlight=False,
        soft_wrap=True,
    )


@app.command()
def methods() -> None:
    """Print the methods: loops, evaluations and batches per step, and what must be tuned.

    Example: `untuned methods`
    """
    from rich.console import Console
    from rich.table import Table

    from untuned import solvers

    table = Table(
        title="Methods at their defaults: evaluations per step of x",
        caption="Hv and Jv: products with grad_yy g and grad_xy g. Means where a number is random; "
        "batches, inner/outer, are the most a step draws.",
    )
    for heading in ("name", "loops", "grad f", "grad g", "Hv", "Jv", "batches"):
        table.add_column(heading, no_wrap=True)
    table.add_column("to tune")
    for name in solvers.names():
        solver = solvers.get(name)()
        counts = ("loop" if count is None else f"{count:g}" for count in solver.cost)
        batches = f"{solver.inner_draws}/{solver.outer_draws}"
        table.add_row(name, solver.loops, *counts, batches, ", ".join(solver.to_tune) or "nothing")
    Console().print(table)


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(sorted(RECIPES))}.")],
    out: Out = Path("untuned-reproduce"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rows, shorter runs.")] = False,
    seed: Seed = 0,
    max_seconds: Annotated[float | None, typer.Option(help="Clock of one run.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Only this; may be repeated.")] = None,
    problem: Annotated[list[str] | None, typer.Option(help="Only this; may be repeated.")] = None,
) -> None:
    """Make the paper's comparison again, on real data; what is finished is not run twice.

    Example: `untuned reproduce figure1 --quick --out comparison`
    """
    typer.echo(recipe(name, out, quick, seed, max_seconds, method=method, problem=problem))


def main() -> None:
    """Entry point: turns the errors users can make into one sentence and exit code 2."""
    try:
        app()
    except (ValueError, OSError) as error:
        typer.echo(f"untuned: {error}", err=True)
        sys.exit(2)
