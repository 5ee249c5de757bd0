"""A user's table comes back as it was: the bytes of a CSV file, the types of a Parquet file."""

import csv
import io
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from refusals import examples
from untuned.commands import clean
from untuned.commands.job import Ready
from untuned.commands.verdicts import Verdicts
from untuned.tables import files, labels
from untuned.tables.decisions import Decisions
from untuned.tables.records import record_starts

CELLS = st.sampled_from(
    ["01002", "12345678901234567", "-1.50", "1e5", "TRUE", "", "NA", "None", " x ", "=1+1", "+3",
     "1,5", "a;b|c\td", 'he said "no"', "two\nlines", "two\r\nlines", "\u0663\u0664", "12\u00a0",
     "\u2028", "5' 3\" tall", "#N/A", "2020-01-02", "'"]
)  # fmt: skip
CLASSES = [
    "001",
    "1",
    "NA",
    "None",
    "null",
    "TRUE",
    "a;b",
    "c,d",
    'e"f',
    "g\nh",
    "12345678901234567890",
]


def raw(cell, separator, is_quoted):
    """A cell as a file may write it."""
    needed = any(sign in cell for sign in (separator, '"', "\n", "\r"))
    return '"' + cell.replace('"', '""') + '"' if needed or is_quoted else cell


@st.composite
def csv_files(draw):
    """What stands before the header, the header, records, and their labels as they are written."""
    separator = draw(st.sampled_from(",;\t|"))
    end = draw(st.sampled_from(["\n", "\r\n"]))
    width, rows = draw(st.integers(0, 3)), draw(st.integers(8, 12))
    separator = separator if width else ","  # what a file of one column is taken to have
    place = draw(st.integers(0, width))
    classes = draw(st.lists(st.sampled_from(CLASSES), min_size=2, max_size=3, unique=True))
    own = draw(st.sampled_from(["", "\ufeff"])), separator, place
    names = [f"c{number}" for number in range(width)]
    names[place:place] = [draw(st.sampled_from(["y", '"y"']))]
    quoted = st.booleans()
    blank = draw(st.integers(2 * len(classes), rows - 1))  # beside which NA and None are classes
    records, told = [], []
    for row in range(rows):
        # Two rows of each class at least; the others may have blanks for a label.
        label = (
            ""
            if row == blank
            else (
                classes[row % len(classes)]
                if row < 2 * len(classes)
                else draw(st.sampled_from([*classes, "", "  "]))
            )
        )
        cells = [raw(draw(CELLS), separator, draw(quoted)) for _ in range(width)]
        cells[place:place] = [raw(label, separator, draw(quoted))]
        if place < width and not draw(st.integers(0, 5)):
            cells = cells[: max(place + 1, draw(st.integers(1, width)))]  # a short line
        if not any(cell.strip(" \t") for cell in cells):
            cells[-1] = '""'  # a line without a letter is no record
        blank_line = end if not draw(st.integers(0, 9)) else ""
        records.append(separator.join(cells) + end + blank_line)
        told.append((label.strip(), cells[place]))
    if draw(st.booleans()):
        records[-1] = records[-1].rstrip("\r\n")
    return own, separator.join(names) + end, records, told


def written(table, given, suspects, settled, values, folder):
    """The tables of `untuned clean`, of these suspects and corrections."""
    count = len(given.rows)
    ones = np.ones(count)
    found = Verdicts(ones, given.values, ones, suspects, 0.0, {}, None, None, None, None)
    ready = Ready(table, given, [], None, None, None, [])
    decided = Decisions(pd.DataFrame(), settled, values, np.zeros(0, int))
    tables = clean._tables(clean.Cleaned(ready, found, decided, {}), "y")
    return [
        folder / files.write(tables[name], folder, name, table.format)
        for name in ("cleaned", "suspects")
    ]


def drawn(draw, given):
    """Suspects, the worst first, and corrections of other rows."""
    order = draw(st.permutations(range(len(given.rows))))
    cut = draw(st.integers(0, len(order)))
    settled = np.array(order[cut : cut + 2], int)
    values = given.values[np.array(draw(st.permutations(range(len(given.rows)))), int)]
    return np.array(order[:cut], int), settled, values[: len(settled)]


def test_records_of_csv_come_back_byte_for_byte(tmp_path):
    @examples(60)
    @given(csv_files(), st.data())
    def run(file, data):
        (bom, separator, place), header, records, told = file
        path = tmp_path / "odd.csv"
        path.write_bytes((bom + header + "".join(records)).encode())
        table = files.read(path)
        found = labels.read(table, "y", "classes")
        # Every label that is written is one, and is called as it is written.
        assert found.rows.tolist() == [row for row, (label, _) in enumerate(told) if label]
        assert [str(each) for each in found.values] == [label for label, _ in told if label]
        suspects, settled, values = drawn(data.draw, found)
        cleaned, shown = written(table, found, suspects, settled, values, tmp_path)
        check_suspects(shown, bom, separator, header, records, found.rows[suspects])
        versions = [[record] for record in records]
        for row, label in zip(found.rows[settled].tolist(), values, strict=True):
            if str(label) != told[row][0]:  # corrected: as any other row writes that label
                cells = cells_of(records[row], separator)
                end = cells[place][len(told[row][1]) :] if place == len(cells) - 1 else ""
                versions[row] = [
                    separator.join([*cells[:place], each + end, *cells[place + 1 :]])
                    for name, each in told
                    if name == str(label)
                ]
        left = cleaned.read_bytes().decode()
        gone = set(found.rows[suspects].tolist())
        for one_of in [[bom + header], *(v for row, v in enumerate(versions) if row not in gone)]:
            assert left.startswith(tuple(one_of))
            left = left[max(len(each) for each in one_of if left.startswith(each)) :]
        assert not left

    run()


def cells_of(record, separator):
    """The cells of a record with their quotes, and the last with its line end."""
    cells, cell, inside = [], "", False
    for sign in record:
        inside ^= sign == '"'
        if sign == separator and not inside:
            cells.append(cell)
            cell = ""
        else:
            cell += sign
    return [*cells, cell]


def check_suspects(path, bom, separator, header, records, rows):
    """Our columns first, in the file's own separator, then the user's own bytes."""
    text = path.read_bytes().decode()
    assert text.startswith(f"{bom}_row{separator}_quality{separator}")
    lines = list(csv.reader(io.StringIO(text.removeprefix(bom), newline=""), delimiter=separator))
    lines = [line for line in lines if line]
    assert [int(line[0]) for line in lines[1:]] == rows.tolist()
    at = 0
    for record in [header, *(records[row] for row in rows)]:
        at = text.index(record, at) + len(record)
    ours = files.read_own(path.parent, path.name)
    assert ours.columns[0] == "_row"
    assert ours["_row"].tolist() == rows.tolist()


def test_types_and_metadata_of_parquet_come_back(tmp_path):
    kinds = [
        (pa.int64(), [12345678901234567, None, -1]),
        (pa.uint64(), [2**64 - 1, 0, 1]),
        (pa.decimal128(9, 2), [Decimal("1.10"), None, Decimal("-3.00")]),
        (pa.dictionary(pa.int8(), pa.string()), ["u", "v", None]),
        (pa.timestamp("us", "Europe/Oslo"), [datetime(2020, 1, 2), None, datetime(2021, 1, 1)]),
        (pa.date32(), [date(2020, 1, 2), date(1, 1, 1), None]),
        (pa.list_(pa.string()), [["a"], [], None]),
        (pa.struct({"a": pa.int32()}), [{"a": 1}, None, {"a": None}]),
        (pa.large_string(), ["NA", "None", None]),
        (pa.string_view(), ["longer than twelve letters", "NA", None]),
        (pa.binary(), [b"\xff", b"", None]),
        (pa.float32(), [0.1, float("nan"), None]),
        (pa.bool_(), [True, None, False]),
    ]
    classes = [
        (pa.string(), ["001", "None"]),
        (pa.int64(), [12345678901234567, 12345678901234568]),
        (pa.bool_(), [True, False]),
        (pa.dictionary(pa.int8(), pa.string()), ["u", "v"]),
        (pa.date32(), [date(2020, 1, 2), date(2020, 1, 3)]),
        (pa.decimal128(9, 0), [Decimal(1), Decimal(2)]),
    ]

    @examples(40)
    @given(st.data())
    def run(data):
        rows = data.draw(st.integers(5, 12))
        columns = data.draw(st.lists(st.sampled_from(kinds), max_size=4))
        kind, both = data.draw(st.sampled_from(classes))
        label = [
            data.draw(st.sampled_from([*both, None])) if row > 3 else both[row % 2]
            for row in range(rows)
        ]
        arrays = [pa.array([values[row % 3] for row in range(rows)], t) for t, values in columns]
        fields = [pa.field(f"c{number}", each.type) for number, each in enumerate(arrays)]
        place = data.draw(st.integers(0, len(arrays)))
        arrays.insert(place, pa.array(label, kind))
        fields.insert(place, pa.field("y", kind))
        own = pa.table(arrays, pa.schema(fields, {"made by": "hand"}))
        path = tmp_path / "odd.parquet"
        parquet.write_table(own, path, row_group_size=4)
        table = files.read(path)
        own = parquet.read_table(path)  # Parquet has a name of its own for the elements of a list
        found = labels.read(table, "y", "classes")
        assert found.rows.tolist() == [row for row, each in enumerate(label) if each is not None]
        suspects, settled, values = drawn(data.draw, found)
        cleaned, shown = written(table, found, suspects, settled, values, tmp_path)
        expected = own.to_pylist()
        of_text = {str(each): each for each in both}
        for row, value in zip(found.rows[settled], values, strict=True):
            expected[row]["y"] = of_text[str(value)]
        gone = set(found.rows[suspects].tolist())
        back = parquet.read_table(cleaned)
        assert back.schema.equals(own.schema, check_metadata=True)
        expected = [each for row, each in enumerate(expected) if row not in gone]
        np.testing.assert_equal(back.to_pylist(), expected)
        back = parquet.read_table(shown)
        assert back.column_names[0] == "_row"
        back = back.select(back.column_names[-len(own.column_names) :])
        assert back.schema.equals(own.schema, check_metadata=True)
        expected = own.to_pylist()
        expected = [expected[row] for row in found.rows[suspects]]
        np.testing.assert_equal(back.to_pylist(), expected)

    run()


def pandas_sees(content, separator):
    try:
        return len(pd.read_csv(io.BytesIO(content), sep=separator, index_col=False, dtype=str))
    except (ValueError, pd.errors.ParserWarning):
        return None


def test_records_are_cut_where_pandas_cuts_them():
    signs = st.sampled_from([*'"",,;;\n\n\t a1', '""', "\r\n", "\u2028", "\x0b", "\x85", "\u00e9"])

    @examples(300)
    @given(st.lists(signs, max_size=40), st.sampled_from(",;\t"), st.booleans())
    def run(text, separator, with_bom):
        content = ("\ufeff" * with_bom + f"x{separator}y\n" + "".join(text)).encode()
        seen = pandas_sees(content, separator)
        if seen is not None:
            assert len(record_starts(content, separator)) == seen + 1

    run()


@pytest.mark.parametrize(
    ("cells", "task", "values", "note"),
    [
        (["001", "1"] * 3, "classes", ["001", "1"] * 3, ""),
        (["1", "2", ""] * 3, "classes", [1, 2] * 3, ""),
        (["1.0", "2", ""] * 3, "classes", [1, 2] * 3, ""),
        (["12345678901234567", "12345678901234568", ""] * 3, "classes",
         [12345678901234567, 12345678901234568] * 3, ""),
        (["TRUE", "FALSE"] * 3, "classes", ["TRUE", "FALSE"] * 3, ""),
        (["None", "mild"] * 3, "classes", ["None", "mild"] * 3, "3 rows with the label 'None' are"),
        (["NA", "b", "", " "] * 3, "classes", ["NA", "b"] * 3, "are a class of their own; if"),
        (["NA", "1", "2"] * 3, "classes", [1, 2] * 3, "count as rows without a label, since such"),
        (["NA", "1", "2", ""] * 3, "classes", ["NA", "1", "2"] * 3, "are a class"),
        (["NA", "1", "2", ""] * 3, None, [1, 2] * 3, "among the numbers of 'y'"),
        (["NA", "1.5", "2"] * 3, "numbers", [1.5, 2] * 3, "count as rows without"),
        (["05", "1.5"] * 3, "numbers", [5, 1.5] * 3, ""),
        (["-9", "word"] * 3, "classes", ["-9", "word"] * 3, ""),
    ],
)  # fmt: skip
def test_labels_are_called_as_they_are_written(cells, task, values, note, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"5,{cell}\n" for cell in cells))
    found = labels.read(files.read(path), "y", task)
    assert found.values.tolist() == values
    assert note in found.note
    assert bool(note) == bool(found.note)


def test_a_word_among_numbers_of_another_column_is_no_class(tmp_path):
    """R writes NA wherever a value is missing."""
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "1,a\nNA,b\n2,NA\n" * 3)
    found = labels.read(files.read(path), "y", "classes")
    assert found.values.tolist() == ["a", "b"] * 3
    assert "stands among the numbers of 'x'" in found.note


@pytest.mark.parametrize("train", ["a\nNone", "001\n2"])
def test_trusted_labels_are_called_as_in_the_training_rows(train, tmp_path):
    (tmp_path / "train.csv").write_text("y\n" + f"{train}\n" * 3)
    (tmp_path / "trusted.csv").write_text(f"y\n{train}\nNA\n \n")
    table, own = files.read(tmp_path / "train.csv"), files.read(tmp_path / "trusted.csv")
    classes = np.unique(labels.read(table, "y", "classes").values)
    found = labels.read_trusted(own, "y", classes, table)
    assert found.values.tolist() == train.split()
    assert found.rows.tolist() == [0, 1]
