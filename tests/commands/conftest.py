"""What the tests of commands share."""

import sys

import pytest

import standins
from untuned import cli


@pytest.fixture
def untuned(tmp_path, monkeypatch, capsys):
    """The command line in this process, with estimators that fit in no time."""
    standins.install(monkeypatch)
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["untuned", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    return run
