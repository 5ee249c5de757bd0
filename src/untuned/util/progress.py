"""A live bar for long runs, drawn by rich only when it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class Bar:
    """Steps done, the outer loss, the hypergradient norm and the time left."""

    def __init__(self, total: int, title: str):
        from rich import progress

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[news]}"),
            progress.TimeRemainingColumn(),
        )
        self._task = self._bar.add_task(title, total=total, news="compiling")

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def update(self, step: int, outer: float, hypergrad_norm: float) -> None:
        """Show where the run is."""
        news = f"f {outer:.5g}  |hypergradient| {hypergrad_norm:.2e}"
        self._bar.update(self._task, completed=step, news=news)

    def __exit__(self, *error: object) -> None:
        self._bar.stop()


class Jobs:
    """Runs done of all, what was finished last, and the time left."""

    def __init__(self, title: str, total: int, done: int):
        from rich import progress

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeRemainingColumn(elapsed_when_finished=True),
            progress.TextColumn("{task.fields[news]}"),
            # Runs are long and few: an estimate from the last seconds would jump about.
            speed_estimate_period=600,
        )
        self._task = self._bar.add_task(title, total=total, completed=done, news="starting")

    def __enter__(self) -> Jobs:
        self._bar.start()
        return self

    def advance(self, news: str) -> None:
        """One more is done."""
        self._bar.update(self._task, advance=1, news=news)

    def __exit__(self, *error: object) -> None:
        self._bar.stop()


def is_watched() -> bool:
    """Whether a person sees the bars; in a pipe or a file they would be garbage."""
    return sys.stdout.isatty()


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Say what is going on where its length is not known."""
    if not is_watched():
        yield
        return
    from rich.console import Console
    from rich.text import Text

    with Console().status(Text(f"{what} ...")):  # no markup: names of files may have [brackets]
        yield
