"""What is said while a command works."""

import io

import rich.console

from untuned.util import progress


def test_names_in_brackets_are_no_markup(monkeypatch):
    """rich would take [/x] for the end of a style that never began."""
    shown = io.StringIO()
    console = rich.console.Console(file=shown, force_terminal=True, width=80)
    monkeypatch.setattr(progress, "is_watched", lambda: True)
    monkeypatch.setattr(rich.console, "Console", lambda: console)
    with progress.busy("Reading data[/x]/[bold]table.csv"):
        pass
    assert "Reading data[/x]/[bold]table.csv ..." in shown.getvalue()
