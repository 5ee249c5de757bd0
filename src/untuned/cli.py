"""The command line. Bad input ends with one sentence on standard error and exit code 2."""

from __future__ import annotations

import importlib.util
import io
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from untuned.util import wording

STOPPED = 130  # what typer makes of Ctrl-C

app = typer.Typer(
    name="untuned",
    help="Find wrong labels, choose penalties, pick rows: nothing to tune.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Features = Annotated[Path | None, typer.Option(help="Features of the rows of TRAIN: .npy, .npz.")]
Out = Annotated[Path, typer.Option(help="Folder for the output.")]
Method = Annotated[str, typer.Option(help="Optimization method; see `untuned methods`.")]
Seed = Annotated[int, typer.Option(help="Seed of everything random.", min=0, max=2**32 - 1)]
MaxSeconds = Annotated[float | None, typer.Option(help="Seconds the command may take.")]
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
    from untuned.commands import demo as experiment
    from untuned.commands.job import Job

    train = out / "train.csv"
    job = Job("clean", train, experiment.LABEL, out, method, seed, max_seconds, overwrite)
    summary, words = experiment.run(job)
    wrong, found = summary["wrong_labels"], summary["wrong_labels_among_lowest_quality"]
    typer.echo(
        f"{found} of the {wrong} wrong labels are among the {wrong} of lowest quality "
        f"({found / wrong:.0%}); there are {summary['rows']} labels in all.\n"
        f"Test accuracy: {summary['test_accuracy_before']:.1%} when all labels are believed, "
        f"{summary['test_accuracy_after']:.1%} after cleaning.\n"
        f"{words}\n"
        f"Picture of the run: {out / 'run.png'}"
    )


@app.command()
def clean(
    train: Annotated[
        Path,
        typer.Argument(help="Your table, or images in one folder per class.", metavar="TRAIN"),
    ],
    label: Annotated[
        str | None, typer.Option(help="The column that holds the label; not needed for images.")
    ] = None,
    trusted: Annotated[
        Path | None, typer.Option(help="A table with the same columns whose labels are right.")
    ] = None,
    features: Features = None,
    probabilities: Annotated[
        Path | None,
        typer.Option(help="Your model's probabilities for rows it has not seen, one per class."),
    ] = None,
    decisions: Annotated[
        Path | None, typer.Option(help="The decisions.csv that the report page gave.")
    ] = None,
    disputed: Annotated[
        bool, typer.Option("--disputed", help="Show every label that the models would not give.")
    ] = False,
    task: Annotated[
        Literal["classes", "numbers"], typer.Option(help="What the label holds.")
    ] = "classes",
    out: Out = Path("untuned-clean"),
    method: Method = "auto",
    seed: Seed = 0,
    max_seconds: MaxSeconds = None,
    overwrite: Overwrite = False,
) -> None:
    """Find the wrong labels of a table, worst first.

    Rows you trust, if you have any, improve the result; without them the rows judge each other.
    Decide on the suspects in the report's page, and give the file it saves to --decisions.

    Examples:

    `untuned clean train.csv --label species`

    `untuned clean train.parquet --label digit --trusted checked.parquet --out cleaned`

    `untuned clean photos/`

    `untuned clean train.csv --label species --decisions decisions.csv --out second`
    """
    from untuned.commands.clean import clean as command
    from untuned.commands.job import Job
    from untuned.commands.sources import CLASS, Asked

    if not label and not train.is_dir():
        raise ValueError("Missing option '--label': the column of the table to judge.")
    job = Job("clean", train, label or CLASS, out, method, seed, max_seconds, overwrite)
    typer.echo(command(job, Asked(trusted, features, probabilities, decisions, task, disputed)))


@app.command()
def regularize(
    train: Annotated[
        Path,
        typer.Argument(
            help="Your table, CSV or Parquet; or a matrix, SciPy sparse or .npy.", metavar="TRAIN"
        ),
    ],
    label: Annotated[
        str,
        typer.Option(
            help="The column that holds the label; for a matrix, an array in its file, or a file."
        ),
    ],
    penalty: Annotated[
        Literal["feature", "class", "all"] | None,
        typer.Option(help="One strength per feature (the default), per class, or one for all."),
    ] = None,
    norm: Annotated[
        Literal["l2", "l1", "elasticnet"],
        typer.Option(help="Squared penalties; absolute ones, which drop features; or both."),
    ] = "l2",
    groups: Annotated[
        Path | None,
        typer.Option(help="A table of two columns, column and group: one strength per group."),
    ] = None,
    features: Features = None,
    task: Annotated[
        Literal["auto", "classes", "numbers"],
        typer.Option(help="What the label holds; auto looks at its values."),
    ] = "auto",
    out: Out = Path("untuned-regularize"),
    method: Method = "auto",
    seed: Seed = 0,
    max_seconds: MaxSeconds = None,
    overwrite: Overwrite = False,
) -> None:
    """Train a linear model with one penalty strength per feature, chosen on rows held back.

    Examples:

    `untuned regularize patients.csv --label diagnosis`

    `untuned regularize houses.parquet --label price --task numbers --out prices`

    `untuned regularize omics.csv --label relapse --norm l1 --groups blocks.csv`

    `untuned regularize words.npz --label topics.csv --norm l1`
    """
    from untuned.commands.designs import Asked
    from untuned.commands.job import Job
    from untuned.commands.regularize import regularize as command

    job = Job("regularize", train, label, out, method, seed, max_seconds, overwrite)
    asked = Asked(penalty, norm, groups, features, None if task == "auto" else task)
    typer.echo(command(job, asked))


@app.command()
def coreset(
    train: Annotated[Path, typer.Argument(help="Your table, CSV or Parquet.", metavar="TRAIN")],
    label: Annotated[str, typer.Option(help="The column that holds the label.")],
    size: Annotated[int, typer.Option(help="How many rows to keep.", min=1)],
    out: Out = Path("untuned-coreset"),
    method: Method = "auto",
    seed: Seed = 0,
    max_seconds: MaxSeconds = None,
    overwrite: Overwrite = False,
) -> None:
    """Choose few rows, with weights, on which a model learns nearly what it learns from all.

    Example: `untuned coreset train.csv --label species --size 100 --out small`
    """
    from untuned.commands.coreset import coreset as command
    from untuned.commands.job import Job

    job = Job("coreset", train, label, out, method, seed, max_seconds, overwrite)
    typer.echo(command(job, size))


@app.command()
def report(
    folder_of_run: Annotated[Path, typer.Argument(help="The folder of a run.", metavar="DIR")],
    out: Annotated[Path | None, typer.Option(help="Folder for the page, else DIR.")] = None,
) -> None:
    """Write the HTML page of a run again, from the files in its folder.

    Example: `untuned report untuned-clean`
    """
    from untuned.report import run_page

    typer.echo(f"Report: {run_page.write(folder_of_run, out or folder_of_run)}")


@app.command()
def methods() -> None:
    """Print the methods: loops, evaluations and batches per step, and what must be tuned.

    Example: `untuned methods`
    """
    from untuned.commands.methods import show

    show()


@app.command()
def reproduce(
    name: Annotated[
        str, typer.Argument(help="One of all, figure1, figure2, table1, table2, theory, tuning.")
    ],
    out: Out = Path("untuned-reproduce"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer rows, shorter runs.")] = False,
    seed: Seed = 0,
    max_seconds: Annotated[float | None, typer.Option(help="Seconds each run may take.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Only this one; repeatable.")] = None,
    problem: Annotated[list[str] | None, typer.Option(help="Only this one; repeatable.")] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Tables: use the whole network; takes hours.")
    ] = False,
    tasks: Annotated[int | None, typer.Option(help="Tables: how many tasks to run.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Tables: how many seeds, 3 by default.")] = None,
    preset: Annotated[str | None, typer.Option(help="Tables: paper or published.")] = None,
) -> None:
    """Reproduce the paper's figures and tables on real data; finished runs are not repeated.

    Examples:

    `untuned reproduce figure1 --quick --out comparison`

    `untuned reproduce table1 --tasks 5 --out memory`
    """
    if importlib.util.find_spec("untuned_paper") is None:
        raise ValueError(
            "untuned reproduce needs the package untuned-paper, which is not installed; install "
            "it with pip install 'untuned[paper]'."
        )
    recipes = importlib.import_module("untuned_paper.reproduce")
    told: dict[str, Any] = {"method": method, "problem": problem, "full": full or None}
    told |= {"tasks": tasks, "seeds": seeds, "preset": preset}
    typer.echo(recipes.run(name, out, quick, seed, max_seconds, **told))


def main() -> None:
    """Entry point: turns the errors users can make into one sentence and exit code 2.

    Ctrl-C ends with exit code 130, as in shells, and leaves nothing half-written.
    """
    # Threads of OpenMP that wait are to sleep, since spinning takes time from those that work. It
    # reads this when it is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # may know fewer letters than a table has
            stream.reconfigure(errors="backslashreplace")
    code, sentence = 2, ""
    try:
        code = app(standalone_mode=False) or 0
    except typer.TyperException as error:  # options that are missing, unknown or malformed
        sentence = error.format_message()  # empty where only the help was shown
    except (ValueError, OSError, MemoryError, ModuleNotFoundError) as error:
        # All other modules come with the package.
        if isinstance(error, ModuleNotFoundError) and error.name != "torch":
            raise
        sentence = wording.sentence(error)
    if code == STOPPED:
        sentence = "stopped by Ctrl-C; nothing half-written was left."
    if sentence:
        typer.echo(f"untuned: {sentence}", err=True)
    sys.exit(code)
