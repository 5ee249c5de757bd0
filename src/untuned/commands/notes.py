"""What was done with the rows and columns of a user's table, in sentences."""

from __future__ import annotations

from untuned.tables import pixels, texts
from untuned.tables.columns import Column, Takes
from untuned.tables.files import Table
from untuned.tables.labels import Labels
from untuned.util.wording import brief


def of_table(
    table: Table, given: Labels, found: list[Column], images: pixels.Images | None, takes: Takes
) -> list[str]:
    """What was done with rows and columns, in sentences."""
    notes = about_rows(table, given)
    if images:
        notes.append(f"Rows are read as images of {images.side} x {images.side} pixels.")
    for kind, done in (
        ("numbers", "standardised"),
        ("mostly zero", "scaled, and kept as value and place"),
        ("pixels", "scaled to 0 to 1"),
        ("categories", "turned into columns of 0 and 1"),
        ("text", f"read as {texts.in_words(takes.text)}"),
    ):
        names = [column.name for column in found if column.kind == kind]
        if names:
            notes.append(f"{_counted(names, kind)}: {done}.")
    for filled, kinds in (
        ("set to the median", ("numbers", "pixels")),
        ("a category of their own", ("categories",)),
        ("read as empty texts", ("text",)),
    ):
        holes = [column for column in found if column.kind in kinds and column.missing]
        if holes:
            count, names = sum(column.missing for column in holes), [each.name for each in holes]
            many = "s" if count > 1 else ""
            notes.append(f"{count:,} missing value{many} in {_list(names)}: {filled}.")
    reasons: dict[str, list[str]] = {}
    for column in found:
        if column.kind == "left out":
            reason = column.note.partition(":")[0].partition(";")[0]
            reasons.setdefault(reason, []).append(column.name)
    notes += [f"Left out, {reason}: {_list(names)}." for reason, names in reasons.items()]
    return notes + _numbers_as_categories(found)


def about_rows(table: Table, given: Labels) -> list[str]:
    """Sentences on rows without a label, labels that may stand for none, and formulas."""
    without = len(table.frame) - len(given.rows)
    many = "s without a label are" if without > 1 else " without a label is"
    left_out = f"{without:,} row{many} left out of the model." if without else ""
    return [*filter(None, [given.note, left_out]), *_formulas(table)]


def _formulas(table: Table) -> list[str]:
    """A sentence on cells or names that a spreadsheet would run."""
    if table.format != "csv":
        return []
    words = table.frame.select_dtypes(["object", "string"])
    for name in table.frame.columns:
        cells = [str(name), *(words[name].dropna().unique() if name in words else ())]
        found = next((cell for cell in cells if isinstance(cell, str) and _is_formula(cell)), None)
        if found is not None:
            return [
                f"Cells such as {brief(found, 40)} in {brief(name, 40)} stay as they are, and a "
                "spreadsheet would run them as formulas; import the CSV files as text."
            ]
    return []


def _is_formula(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    return False


def _numbers_as_categories(found: list[Column]) -> list[str]:
    """Sentences on columns of categories that are numbers to people."""
    advice: dict[str, list[str]] = {}
    for column in found:
        if column.kind == "categories" and "; " in column.note:
            advice.setdefault(column.note.partition("; ")[2], []).append(column.name)
    return [
        f"Read as categories, though they are {why}: {_list(names)}; {todo}."
        for (why, _, todo), names in ((note.partition("; "), advice[note]) for note in advice)
    ]


def _counted(names: list[str], kind: str) -> str:
    return f"{len(names):,} column{'s' if len(names) > 1 else ''} of {kind} ({_list(names)})"


def _list(names: list[str], most: int = 4) -> str:
    shown = [brief(name, 40) for name in names]
    if len(shown) <= most:
        return ", ".join(shown)
    return f"{shown[0]}, {shown[1]} and {len(shown) - 2:,} more up to {shown[-1]}"
