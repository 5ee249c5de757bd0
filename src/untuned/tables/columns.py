"""What each column of a table is, and the scikit-learn steps that turn all of them into numbers.

The steps are scikit-learn's own classes only, so that a saved model is plain scikit-learn and runs
no code when it is loaded.
"""

from __future__ import annotations

import re
from datetime import date, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from untuned.tables import pixels, texts
from untuned.util.limits import LARGEST
from untuned.util.wording import brief

if TYPE_CHECKING:
    import pandas

# A column of categories becomes at most this many columns of 0 and 1, one for all rare ones: enough
# for states, airlines or teams, and no table of codes becomes too wide.
MOST_CATEGORIES = 100
# Text with so few values is a category, however few rows there are.
FEW_VALUES = 20
# Text that differs in more than half of the rows is a name, an identifier or prose.
MOST_DISTINCT = 0.5
# Numbers with so many zeros take less memory as value and place, and are worth it if they are many.
MOSTLY_ZERO = 0.9
FEW_NUMBERS = 2**20

# Such as -1.234,5, as much of Europe writes it.
WITH_COMMA = r"[-+]?\d+([. ]\d{3})*,\d+"
# Such as $1,234.50, 12.5%, 80 kg or (EUR 1'000): signs of money, units of up to three letters.
MONEY = r"([$€£¥]|USD|EUR|GBP|CHF|JPY|CNY|INR)"
GROUPED = r"(\d{1,3}([,'\u2019\s]\d{3})+(\.\d+)?|\d+([.,]\d+)?)"
WITH_SIGNS = rf"\(?[-+]?({MONEY}\s?)?[-+]?{GROUPED}(\s?([%‰°]|{MONEY})|\s[^\W\d_]{{1,3}})?\)?"

DAYS = (date, time, timedelta)

Kind = Literal["numbers", "mostly zero", "pixels", "categories", "text", "left out"]


class Takes(NamedTuple):
    """What a model takes beside numbers and categories."""

    text: texts.Parts = ()  # what is counted in prose; without, prose is left out
    sparse: bool = False


DENSE = Takes()


class Column(NamedTuple):
    """A column of the user's table and what is done with it."""

    name: str
    kind: Kind
    note: str  # what is done, in words
    missing: int  # rows without a value


class Feature(NamedTuple):
    """A column of what the model sees, and the column of the table it comes from."""

    name: str
    column: str


def understand(frame: pandas.DataFrame, path: Path, takes: Takes = DENSE) -> list[Column]:
    """What each column is. `frame` has no label and only the rows that are used."""
    images = pixels.find(frame)
    lit = set(images.columns) if images else set()
    columns = [
        _understand_one(frame[name], path, name in lit, takes.text) for name in frame.columns
    ]
    if takes.sparse:
        columns = _thinned(columns, frame)
    if all(column.kind == "left out" for column in columns):
        kinds = "numbers, categories or text" if takes.text else "numbers or categories"
        raise ValueError(
            f"{path} has no column to learn from besides the label, as for example "
            f"{brief(columns[0].name, 40)} is left out ({columns[0].note}); expected at least one "
            f"column of {kinds} that is not empty and not the same in every row."
        )
    return columns


def _thinned(columns: list[Column], frame: pandas.DataFrame) -> list[Column]:
    """Those of numbers that are mostly zero said to be so, if they are many."""
    found = [
        each.kind == "numbers"
        and not each.missing
        and bool((frame[each.name] == 0).mean() >= MOSTLY_ZERO)
        for each in columns
    ]
    if sum(found) * len(frame) < FEW_NUMBERS:
        return columns
    return [
        each._replace(kind="mostly zero", note="mostly zero: scaled, and kept as value and place")
        if is_thin
        else each
        for each, is_thin in zip(columns, found, strict=True)
    ]


def prepared(frame: pandas.DataFrame, columns: list[Column], takes: Takes) -> tuple[Any, Any]:
    """The fitted `preparation` of these columns, and what it makes of them, in float32."""
    steps = preparation(columns, takes)
    # As the estimators want it, which spares a copy in float64.
    X = steps.fit_transform(_as_used(frame, columns)).astype(np.float32)
    # Afterwards rows come as plain frames, zeros and all; only texts are sparse by themselves.
    steps.sparse_output_ = any(each.kind == "text" for each in columns)
    return steps, X


def _as_used(frame: pandas.DataFrame, columns: list[Column]) -> pandas.DataFrame:
    """The columns a model learns from, those that are mostly zero without their zeros."""
    import pandas

    used = frame[names_used(columns)]
    thin = [each.name for each in columns if each.kind == "mostly zero"]
    return used.astype(dict.fromkeys(thin, pandas.SparseDtype(np.float64, 0.0))) if thin else used


def _understand_one(values: pandas.Series, path: Path, is_pixel: bool, text: texts.Parts) -> Column:
    import pandas
    from pandas.api import types

    name, missing, there = str(values.name), int(values.isna().sum()), values.dropna()

    def column(kind: Kind, note: str) -> Column:
        return Column(name, kind, note, missing)

    # Lists and bytes, which Parquet can hold, cannot be compared or shown.
    own = there.cat.categories if isinstance(there.dtype, pandas.CategoricalDtype) else there
    kinds = {type(each) for each in own} if own.dtype == object else {str}
    if not all(issubclass(each, (str, bool, *DAYS)) for each in kinds):
        return column("left out", "neither numbers nor text")
    if _are_dates(there):
        return column(
            "left out", "dates or times; give numbers, such as days since, if they matter"
        )
    if not all(issubclass(each, (str, bool)) for each in kinds):
        return column("left out", "text and dates mixed")
    distinct = there.nunique()
    if distinct == 0:
        return column("left out", "no values")
    if distinct == 1:
        return column("left out", f"the same in every row: {str(there.iloc[0])[:40]}")
    if types.is_numeric_dtype(values) and not types.is_bool_dtype(values):
        refuse_extremes(values, path)
        if _counts_rows(there, name, distinct):
            return column("left out", "a different whole number in every row")
        if is_pixel:
            return column("pixels", "scaled to 0 to 1")
        filled = f"{missing:,} missing set to the median, " if missing else ""
        return column("numbers", f"{filled}standardised")
    is_varied = distinct > min(FEW_VALUES, MOST_DISTINCT * len(there))
    if text and is_varied and texts.are_prose(there):
        empty = f", {missing:,} missing as empty ones" if missing else ""
        return column("text", f"{texts.in_words(text)}{empty}")
    advice = _numbers_as_text(there) if distinct > FEW_VALUES else ""
    if distinct > max(FEW_VALUES, MOST_DISTINCT * len(there)):
        return column(
            "left out", advice or "text that differs from row to row: names or identifiers"
        )
    shown = f"{distinct:,} categories"
    if distinct > MOST_CATEGORIES:
        shown += f", the rarest combined, as {MOST_CATEGORIES} columns of 0 and 1"
    else:
        shown += " as columns of 0 and 1"
    shown += f", {missing:,} missing as a category" if missing else ""
    return column("categories", f"{shown}; {advice}" if advice else shown)


def as_categories(values: pandas.Series) -> pandas.Series:
    """Categories that are all numbers, or all missing, in one file and text in another."""
    from pandas.api import types

    if types.is_bool_dtype(values) or not types.is_numeric_dtype(values):
        return values
    words = [str(int(v)) if float(v).is_integer() else str(v) for v in values.dropna()]
    texts = values.astype(object)
    texts[values.notna()] = words
    return texts


def refuse_extremes(values: pandas.Series, path: Path) -> None:
    """Refuse a column with a number that is not finite or too large to be squared."""
    sizes = np.abs(values.to_numpy(dtype=np.float64, na_value=0.0))
    if not sizes.max(initial=0.0) <= LARGEST:
        row = int(values.index[int(np.argmax(sizes))])
        raise ValueError(
            f"Column {brief(values.name)} of {path} has {values[row]} in row {row} (counted from "
            f"0); expected finite numbers below {LARGEST:g}, or an empty cell where the value is "
            "not known."
        )


def _counts_rows(there: pandas.Series, name: str, distinct: int) -> bool:
    """Row numbers, and columns called an identifier whose whole numbers never repeat."""
    from pandas.api import types

    if distinct < len(there) or not types.is_integer_dtype(there):
        return False
    runs = int(there.max()) - int(there.min()) == len(there) - 1 and there.is_monotonic_increasing
    named = re.search(r"(^|[^a-z])(id|idx|index|key|nr|no)$", name.strip().lower()) is not None
    return runs or named


def _are_dates(there: pandas.Series) -> bool:
    """Dates or times by type, or text that nearly always holds a year, a month and a day."""
    from pandas.api import types

    if types.is_datetime64_any_dtype(there) or types.is_timedelta64_dtype(there):
        return True
    if types.is_numeric_dtype(there) or not len(there):
        return False
    sample = there.iloc[:200]
    if all(isinstance(value, DAYS) for value in sample):
        return True
    day = r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})(\D.*)?"
    return bool(sample.astype(str).str.fullmatch(day).mean() > 0.9)


def _numbers_as_text(there: pandas.Series) -> str:
    """Why nearly all of a column of texts are numbers to people, and what to do; else nothing."""
    import pandas

    sample = there.iloc[:200].astype(str).str.strip()

    def mostly(pattern: str) -> bool:
        return bool(sample.str.fullmatch(pattern).mean() > 0.9)

    numbers = pandas.to_numeric(there, errors="coerce")
    if numbers.iloc[:200].notna().mean() > 0.9:
        strange = there[numbers.isna()]
        if strange.empty:
            return "numbers that the file holds as text; save them as numbers"
        return f"numbers but for cells such as {brief(strange.iloc[0], 20)}; leave such cells empty"
    if mostly(WITH_COMMA):
        return "numbers with a decimal comma; save them with a point"
    if mostly(WITH_SIGNS):
        return "numbers with signs, units or thousands separators; save them without"
    return ""


def names_used(columns: list[Column]) -> list[str]:
    """The columns a model learns from."""
    return [column.name for column in columns if column.kind != "left out"]


def preparation(columns: list[Column], takes: Takes = DENSE) -> Any:
    """The scikit-learn transformer that turns the columns into numbers, not yet fitted."""
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler

    steps = {
        "numbers": make_pipeline(SimpleImputer(strategy="median"), StandardScaler()),
        "mostly zero": StandardScaler(with_mean=False),
        # A pixel that is lit in few images would be blown up by its small deviation.
        "pixels": make_pipeline(SimpleImputer(strategy="median"), MinMaxScaler()),
        "categories": OneHotEncoder(
            handle_unknown="infrequent_if_exist",
            max_categories=MOST_CATEGORIES,
            sparse_output=False,
            dtype=np.float64,
        ),
    }
    names = {kind: [each.name for each in columns if each.kind == kind] for kind in steps}
    prose = [each.name for each in columns if each.kind == "text"]
    is_sparse = bool(prose or names["mostly zero"])
    # Dense, but never where there are texts, of which a row has few words.
    return ColumnTransformer(
        [(kind, steps[kind], names[kind]) for kind in steps if names[kind]]
        + [(f"text {place}", texts.step(takes.text), [name]) for place, name in enumerate(prose)],
        sparse_threshold=1.0 if is_sparse else 0,
    )


def features(prepared: Any) -> list[Feature]:
    """What each column of the fitted `preparation`'s output stands for."""
    import pandas

    found = []
    for kind, step, names in prepared.transformers_:
        if kind in ("numbers", "mostly zero", "pixels"):
            found += [Feature(name, name) for name in names]
        elif kind == "categories":
            parts = zip(names, step.categories_, step.infrequent_categories_, strict=True)
            for name, values, rare in parts:
                rare = [] if rare is None else list(rare)
                words = ["(missing)" if pandas.isna(v) else str(v) for v in values if v not in rare]
                words += ["(rare ones)"] if rare else []
                found += [Feature(f"{name} = {word}", name) for word in words]
        elif kind.startswith("text"):
            found += [Feature(names[0], names[0])] * texts.width(step)
    return found


def prose(prepared: Any) -> dict[str, tuple[Any, int]]:
    """The fitted steps of each column of texts, and where its features begin."""
    owners = [each.column for each in features(prepared)]
    return {
        names[0]: (step, owners.index(names[0]))
        for kind, step, names in prepared.transformers_
        if kind.startswith("text")
    }
