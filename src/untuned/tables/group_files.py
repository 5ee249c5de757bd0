"""Which columns share a penalty strength, from a table of two columns: column, group."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from untuned.tables import files
from untuned.tables.columns import Column
from untuned.util.wording import brief, unknown

EXPECTED = "expected a table of two columns, the name of a column and that of its group."


def read(path: Path, columns: Sequence[Column], of: Path) -> dict[str, str]:
    """The group of each column that is learned from; `columns` are all but the label."""
    frame = files.read(path, as_text=True).frame.astype(str)
    if frame.shape[1] != 2:
        raise ValueError(f"{path} has {frame.shape[1]} columns; {EXPECTED}")
    known = {each.name: each for each in columns}
    groups: dict[str, str] = {}
    for row, (name, group) in enumerate(frame.itertuples(index=False), 1):
        if not name.strip() or not group.strip():
            empty = f"the group {brief(group)} without a column" if group.strip() else "no group"
            raise ValueError(f"{path} has {empty} in row {row}; {EXPECTED}")
        if name not in known:
            where = f"column to learn from in {of} (row {row} of {path}) called"
            raise unknown(where, name, known)
        if groups.setdefault(name, group) != group:
            raise ValueError(
                f"{path} puts the column {brief(name)} into the groups {brief(groups[name])} and "
                f"{brief(group)}; expected one."
            )
    used = [each.name for each in columns if each.kind != "left out"]
    missing = [name for name in used if name not in groups]
    if missing:
        raise ValueError(
            f"{path} says no group for {len(missing):,} of {len(used):,} columns of {of}, the "
            f"first being {brief(missing[0])}; give each one."
        )
    there = {groups[name] for name in used}
    for name, group in groups.items():
        if group not in there:
            raise ValueError(
                f"The group {brief(group)} of {path} has no column to learn from, as {brief(name)} "
                f"of {of} is left out ({known[name].note}); leave the group out too."
            )
    return {name: groups[name] for name in used}
