"""decisions.csv after a spreadsheet has saved it."""

import pandas as pd
import pytest

from untuned.tables import decisions, files, labels


def read(folder, values, told):
    """What was decided for the first rows of a table with these labels, by a file with `told`."""
    path, saved = folder / "train.csv", folder / "decisions.csv"
    pd.DataFrame({"a": [i + 0.5 for i in range(len(values))], "y": values}).to_csv(
        path, index=False
    )
    table = files.read(path)
    given = labels.read(table, "y", None)
    pd.DataFrame(
        {
            "row": range(len(told)),
            "digest": decisions.digests(table.frame)[: len(told)],
            "given": given.values[: len(told)].astype(str),
            "decision": "change",
            "label": told,
        }
    ).to_csv(saved, index=False, sep=";", encoding="utf-8-sig")
    return decisions.read(saved, table.frame, given, path, ()).values.tolist()


@pytest.mark.parametrize(
    ("values", "told", "meant"),
    [
        ([True, False], ["TRUE", "false"], ["True", "False"]),
        ([1, 2], ["2.0", "1"], [2, 1]),
        (["ja", "nein"], ["nein ", "Ja"], ["nein", "ja"]),
        (["a", "A"], ["A", "a"], ["A", "a"]),
    ],
    ids=["bool", "whole", "blanks", "case"],
)
def test_labels_as_a_spreadsheet_writes_them(tmp_path, values, told, meant):
    assert read(tmp_path, values * 3, told) == meant


def test_labels_of_no_class_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has the label 'A ', which is none of the classes"):
        read(tmp_path, ["a", "A"] * 3, ["A "])
    with pytest.raises(ValueError, match=r"has the label '3', which is none of the classes"):
        read(tmp_path, [1, 2] * 3, ["3"])
