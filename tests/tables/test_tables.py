"""Reading a user's table: what is understood, what is refused, and that nothing goes unsaid."""

import os
import re
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_digits

from untuned.commands.job import make_ready, make_trusted_ready
from untuned.tables import columns, files, labels, pixels
from untuned.tables.records import Selection
from untuned.util import memory


@pytest.fixture
def messy():
    """A table with everything real tables have."""
    rng = np.random.default_rng(0)
    rows = 300
    frame = pd.DataFrame(
        {
            "customer_id": rng.permutation(10_000)[:rows],
            "number": np.arange(rows) + 7,
            "age": rng.normal(40, 9, rows),
            "city": rng.choice(["Oslo", "Bonn", "Łódź"], rows),
            "job": [f"job {number % 120}" for number in range(rows)],
            "joined": [f"2020-01-{day % 28 + 1:02d}" for day in range(rows)],
            "is_member": rng.random(rows) < 0.5,
            "country": "NO",
            "comment": [f'he said, "{number}"' for number in range(rows)],
            "empty": np.nan,
            "churn": rng.choice(["yes", "no"], rows),
        }
    )
    frame.loc[3:9, "age"] = np.nan
    frame.loc[5:6, "city"] = None
    return frame


def written(frame, folder, kind):
    path = folder / f"table.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    return path


def found(frame, path):
    return {column.name: column for column in columns.understand(frame, path)}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_columns_are_understood(messy, kind, tmp_path):
    table = files.read(written(messy, tmp_path, kind))
    assert table.format == kind
    assert len(table.frame) == 300
    about = found(table.frame.drop(columns="churn"), table.path)
    assert {name: column.kind for name, column in about.items()} == {
        "customer_id": "left out",
        "number": "left out",
        "age": "numbers",
        "city": "categories",
        "job": "categories",
        "joined": "left out",
        "is_member": "categories",
        "country": "left out",
        "comment": "left out",
        "empty": "left out",
    }
    assert about["age"].missing == 7
    assert about["age"].note == "7 missing set to the median, standardised"
    assert about["country"].note == "the same in every row: NO"
    assert about["empty"].note == "no values"
    assert about["joined"].note.startswith("dates or times")
    assert "rarest combined" in about["job"].note


def test_preparation_gives_what_it_says(messy, tmp_path):
    table = files.read(written(messy, tmp_path, "csv"))
    about = columns.understand(table.frame.drop(columns="churn"), table.path)
    used = table.frame[columns.names_used(about)]
    preparation = columns.preparation(about)
    X = preparation.fit_transform(used)
    seen = columns.features(preparation)
    assert len(seen) == X.shape[1]
    assert np.isfinite(X).all()
    by_name = {feature.name: X[:, place] for place, feature in enumerate(seen)}
    age = messy["age"].fillna(messy["age"].median())
    np.testing.assert_allclose(by_name["age"], (age - age.mean()) / age.std(ddof=0))
    np.testing.assert_array_equal(by_name["city = Łódź"], messy["city"] == "Łódź")
    np.testing.assert_array_equal(by_name["city = (missing)"], messy["city"].isna())
    np.testing.assert_array_equal(by_name["is_member = True"], messy["is_member"])
    jobs = [feature.name for feature in seen if feature.column == "job"]
    assert len(jobs) == columns.MOST_CATEGORIES
    assert jobs[-1] == "job = (rare ones)"
    # Each row has one category of each column.
    assert (sum(by_name[name] for name in jobs) == 1).all()


def test_fifty_states_have_a_column_each(tmp_path):
    states = [f"state {number % 50}" for number in range(200)]
    about = columns.understand(pd.DataFrame({"state": states}), tmp_path)
    preparation = columns.preparation(about)
    X = preparation.fit_transform(pd.DataFrame({"state": states}))
    seen = [feature.name for feature in columns.features(preparation)]
    assert sorted(seen) == sorted(f"state = state {number}" for number in range(50))
    np.testing.assert_array_equal(X.sum(axis=0), 4)


def test_unknown_categories_count_as_rare_ones_without_a_warning(messy, tmp_path):
    table = files.read(written(messy, tmp_path, "csv"))
    about = columns.understand(table.frame[["job", "city", "age"]], table.path)
    preparation = columns.preparation(about).fit(table.frame[["job", "city", "age"]])
    new = pd.DataFrame({"job": ["astronaut"], "city": ["Rome"], "age": [30.0]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        row = preparation.transform(new)[0]
    seen = columns.features(preparation)
    lit = [feature.name for feature, value in zip(seen, row, strict=True) if value == 1]
    assert lit == ["job = (rare ones)"]


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_separator_is_found(messy, separator, tmp_path):
    path = tmp_path / "table.txt"
    messy.to_csv(path, sep=separator, index=False)
    assert list(files.read(path).frame.columns) == list(messy.columns)


def test_separators_in_quoted_names_do_not_count(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('"size, in cm, of it";"a\nb, c";y\n1.5;2;a\n2.5;3;b\n')
    assert list(files.read(path).frame.columns) == ["size, in cm, of it", "a\nb, c", "y"]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_texts_of_many_lines_in_a_file_longer_than_the_sample(tmp_path, end, monkeypatch):
    """The sample ends inside a quoted text, of which there are fewer than it has lines."""
    monkeypatch.setattr(files, "SAMPLE_BYTES", 5_000)
    text = end.join(["Dear all,", 'he said "yes"', "", "Yours"] * 60)
    frame = pd.DataFrame(
        {"text": [f"{number}{end}{text}" for number in range(20)], "y": [0, 1] * 10}
    )
    path = tmp_path / "mails.csv"
    frame.to_csv(path, index=False)
    pd.testing.assert_frame_equal(files.read(path).frame, frame, check_dtype=False)
    size = frame.memory_usage(deep=True).sum()
    monkeypatch.setattr(memory, "available", lambda: 2 * memory.TIMES_THE_TABLE * size)
    files.read(path)  # as large as it is, not as many times as a text has lines
    monkeypatch.setattr(memory, "available", lambda: memory.TIMES_THE_TABLE * size / 2)
    with pytest.raises(ValueError, match="of memory"):
        files.read(path)


def test_names_of_columns_may_be_longer_than_the_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SAMPLE_BYTES", 100)
    frame = pd.DataFrame(np.zeros((9, 400)), columns=[f"ä{number}" for number in range(400)])
    path = tmp_path / "wide.csv"
    frame.to_csv(path, index=False)
    assert list(files.read(path).frame.columns) == list(frame.columns)
    # Lines without an end, as of an old Macintosh, may be cut in the middle of a letter.
    path.write_bytes(frame.to_csv(index=False, lineterminator="\r").encode())
    for longest in range(3000, 3010):
        monkeypatch.setattr(files, "LONGEST_LINE", longest)
        assert files.read(path).frame.shape == (9, 400)


def refused(content, tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        files.read(path)
    words = str(caught.value)
    assert "\n" not in words
    assert str(path) in words
    return words


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"a,b,y\n", "has no rows"),
        (b"a,a,y\n1,2,3\n", "more than one column named 'a'"),
        (b"a,y\n1,2\n1,2,3\n", "could not be read as CSV: Expected 2 fields in line 3, saw 3."),
        (b"a,y\n1,2,3\n4,5,6\n", "rows with more cells than its first line has names"),
        (b"a,y\n\xff\xfe,2\n", "is not UTF-8 text"),
        (b"a,y\n\x00,2\n", "neither CSV nor Parquet"),
        (b"\x1f\x8b\x00\x00\x00", "is compressed by gzip; unpack it."),
        ("a,y\n1,2\n".encode("utf-16"), "is text in UTF-16; save it as CSV in UTF-8."),
        (
            b"PK\x03\x04\x14\x00",
            "is a workbook, as of Excel, or another zip file; save its sheet as",
        ),
        (b"PAR1 but nothing else", "could not be read as PARQUET"),
    ],
)
def test_files_that_are_no_table_are_refused(content, words, tmp_path):
    assert words in refused(content, tmp_path)


def test_arrays_are_no_table(tmp_path):
    np.save(tmp_path / "X.npy", np.eye(3))
    with pytest.raises(ValueError, match=r"X.npy holds arrays; expected a table.*--features"):
        files.read(tmp_path / "X.npy")


def test_decimals_of_a_database_are_numbers(tmp_path):
    prices = [Decimal(row) / 4 for row in range(40)]
    prices[3] = None
    pd.DataFrame({"price": prices, "kind": list("ab") * 20}).to_parquet(tmp_path / "sales.parquet")
    ready = make_ready(tmp_path / "sales.parquet", "kind", "classes")
    assert ready.columns[0].note == "1 missing set to the median, standardised"
    # The prepared model takes the table as it is, decimals and all.
    raw = pd.read_parquet(tmp_path / "sales.parquet")
    assert isinstance(raw["price"][0], Decimal)
    np.testing.assert_array_equal(ready.preparation.transform(raw).astype(np.float32), ready.X)


def test_no_such_file(tmp_path):
    with pytest.raises(ValueError, match="There is no file"):
        files.read(tmp_path / "nothing.csv")
    with pytest.raises(ValueError, match="is a folder"):
        files.read(tmp_path)


def test_file_larger_than_memory_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "huge.csv"
    with path.open("w") as opened:
        opened.write("a,b,y\n")
        opened.writelines(f"{number},{number % 7},{number % 2}\n" for number in range(200_000))
    os.truncate(path, 2**42)  # a hole: four terabytes that take no room on the disk
    with pytest.raises(ValueError, match=r"would need about [\d,.]+ GB of memory and [\d.]+ GB"):
        files.read(path)


def test_parquet_larger_than_memory_is_refused_by_its_metadata(messy, tmp_path, monkeypatch):
    path = written(messy, tmp_path, "parquet")
    size = 8 * messy.shape[0] * messy.shape[1]
    monkeypatch.setattr(memory, "available", lambda: memory.TIMES_THE_TABLE * size)
    with pytest.raises(ValueError, match="of memory"):
        files.read(path)
    monkeypatch.setattr(memory, "available", lambda: 4 * memory.TIMES_THE_TABLE * size)
    files.read(path)


def test_limits_of_a_container_count(tmp_path):
    assert memory._of_container(tmp_path) > 2**60
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    assert memory._of_container(tmp_path) == 600_000
    (tmp_path / "memory.stat").write_text("file 300000\ninactive_file 250000\nactive_file 50000\n")
    assert memory._of_container(tmp_path) == 850_000  # files read before make room
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._of_container(tmp_path) > 2**60
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "memory.limit_in_bytes").write_text("1000\n")
    (tmp_path / "memory" / "memory.usage_in_bytes").write_text("900\n")
    (tmp_path / "memory" / "memory.stat").write_text("inactive_file 5\ntotal_inactive_file 30\n")
    assert memory._of_container(tmp_path) == 130
    assert 2**20 < memory.available() < 2**50


def as_table(values, tmp_path):
    return files.made(tmp_path / "t.csv", pd.DataFrame({"y": values}))


def test_labels_are_classes_or_numbers(tmp_path):
    read = lambda values, task=None: labels.read(as_table(values, tmp_path), "y", task)
    assert read(["a", "b"] * 5).task == "classes"
    assert read([0, 1, 2] * 5).values.dtype == np.int64
    assert read([0.0, 1.0, np.nan] * 5).values.tolist() == [0, 1] * 5
    assert read([0.0, 1.0, np.nan] * 5).rows.tolist()[:4] == [0, 1, 3, 4]
    assert read([True, False] * 5).values.tolist()[:2] == ["True", "False"]
    assert read([0.5, 1.25, 3.0] * 5).task == "numbers"
    assert read(list(range(100)) * 3).task == "numbers"
    assert read(list(range(100)) * 3, "classes").task == "classes"
    # Whole numbers that 64 bits do not hold stay what they are.
    assert read([1e20, -3e20, 2e20] * 5).values.tolist()[:3] == [1e20, -3e20, 2e20]


@pytest.mark.parametrize(
    ("values", "task", "words"),
    [
        ([1, 1, 1], None, "only one value, 1"),
        (["a", "a"], "classes", "only one value, 'a'"),
        ([np.nan, np.nan], None, "are missing"),
        (
            [0.5, 1.5] * 3,
            "classes",
            "0.5; expected classes, that is text or whole numbers, or --task",
        ),
        (
            [1e20, 2e20] * 3,
            "classes",
            r"such as 1e\+20; .* whole numbers below 9,007,199,254,740,992",
        ),
        (["a", "b"] * 3, "numbers", "holds text such as 'a'"),
        ([f"name {number}" for number in range(9)], "classes", "9 classes in 9 rows"),
        ([1.5, np.inf, 2.0], "numbers", "holds inf"),
        ([1.0, np.inf, 2.0], "classes", "holds inf"),
        ([1.5, -1e300, 2.0], "numbers", r"holds 1e\+300; expected finite numbers below 1e\+37"),
    ],
)
def test_labels_that_cannot_be_learned_are_refused(values, task, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        labels.read(as_table(values, tmp_path), "y", task)


def corrected(table, given, row, value, folder):
    """The label column of the file that is written with another label in one row."""
    dtype = object if isinstance(value, str) else None
    new = labels.corrections(table, "y", given, np.array([row]), np.array([value], dtype))
    name = files.write(
        Selection(table.records, np.arange(len(table.frame)), corrections=new),
        folder, "out", table.format,
    )  # fmt: skip
    return files.read(folder / name)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("column", "task", "value", "expected"),
    [
        (pd.Series([True, False] * 2), "classes", "False", [False, False, True, False]),
        (pd.Series(pd.Categorical(["a", "b"] * 2)), "classes", "b", ["b", "b", "a", "b"]),
        (pd.Series([1, 2, 1, 2]), "classes", 2, [2, 2, 1, 2]),
        (pd.Series([1, 2, 3, 4]), "numbers", 7.0, [7, 2, 3, 4]),
        (pd.Series([1, 2, 3, 4]), "numbers", 0.1, [0.1, 2, 3, 4]),
        (pd.Series([1, 2, 3, 4], dtype="float32"), "numbers", 0.25, [0.25, 2, 3, 4]),
        (pd.Series([1, 2, 3, 4], dtype="int8"), "numbers", 300.0, [300, 2, 3, 4]),
    ],
)
def test_labels_are_corrected_in_the_type_they_have(kind, column, task, value, expected, tmp_path):
    table = files.read(written(pd.DataFrame({"y": column}), tmp_path, kind))
    found = corrected(table, labels.read(table, "y", task), 0, value, tmp_path).frame["y"]
    assert found.tolist() == expected
    if value not in (0.1, 300.0):  # of which integers of so few bits hold none
        assert found.dtype == table.frame["y"].dtype


def test_blanks_around_labels_are_not_seen(tmp_path):
    column = ["a ", "a", " b", "b", "  ", "a"]
    table = as_table(column, tmp_path)
    given = labels.read(table, "y", None)
    assert given.values.tolist() == ["a", "a", "b", "b", "a"]
    assert given.rows.tolist() == [0, 1, 2, 3, 5]
    # No other row gets the blanks.
    found = corrected(table, given, 3, "a", tmp_path)
    assert found.frame["y"].tolist() == ["a ", "a", " b", "a", "  ", "a"]


@pytest.mark.parametrize("name", ["chrun", "CHURN", "churn"])
def test_no_such_label_names_the_nearest(messy, tmp_path, name):
    table = files.read(written(messy.rename(columns={"churn": " Churn "}), tmp_path, "csv"))
    with pytest.raises(ValueError, match="nearest name is ' Churn '"):
        labels.read(table, name, None)


def test_a_decimal_comma_is_named(tmp_path):
    """It is no name or identifier, though every row has another one."""
    path = tmp_path / "europe.csv"
    lines = [f"{row},{row % 9}5;1.{row:03d},5;u{row};{row % 3}" for row in range(40)]
    path.write_text("\n".join(["a;b;name;c", *lines]))
    frame = files.read(path).frame
    about = found(frame, path)
    for name in ("a", "b"):
        assert about[name].note == "numbers with a decimal comma; save them with a point"
    assert about["name"].note.startswith("text that differs from row to row")
    with pytest.raises(ValueError, match=r"for example 'a' is left out \(numbers with a decimal"):
        columns.understand(frame[["a", "b"]], path)


SIGNS = "numbers with signs, units or thousands separators; save them without"


@pytest.mark.parametrize(
    ("cell", "note"),
    [
        (lambda row: f"${1000 + 7.5 * row:,.2f}", SIGNS),
        (lambda row: f"{row / 3:.1f}%", SIGNS),
        (lambda row: f"{row + 0.5} kg", SIGNS),
        (lambda row: f"EUR {row}'000", SIGNS),
        (lambda row: f"({row},000)" if row % 2 else f"{row}", SIGNS),
        (lambda row: "?" if row == 300 else f"{row}.5", "numbers but for cells such as '?'; leave"),
        (lambda row: "n.a." if row % 15 == 1 else f"{row}", "numbers but for cells such as 'n.a.'"),
        (lambda row: f"AB{row}", "text that differs from row to row"),
        (lambda row: f"{row}a", "text that differs from row to row"),
        (lambda row: f"{row}-{row}", "text that differs from row to row"),
    ],
)
def test_numbers_written_as_text_are_named(cell, note, tmp_path):
    """They are left out, or read as categories, and who reads the summary can do better."""
    path = tmp_path / "t.csv"
    values = [cell(row) for row in range(400)]
    frame = pd.DataFrame({"a": values, "often": [values[row % 60] for row in range(400)]})
    if values[300] == "?":
        frame.loc[300, "often"] = "?"
    about = found(frame, path)
    assert about["a"].kind == "left out"
    assert about["a"].note.startswith(note)
    assert about["often"].kind == "categories"
    assert note.startswith("text") or f"0 and 1; {note}" in about["often"].note


@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize(
    "strange", ["Source: census office", "kg", "7\u00a0", "\u0663", "1,234", "inf", "", "TRUE"]
)
def test_rows_without_a_label_change_nothing_that_is_learned(strange, place, tmp_path):
    """A footer, a row of units: one of them made text of a column of numbers."""
    rng = np.random.default_rng(0)
    rows = [f"{number},{rng.normal():.3f},{'ab'[number % 2]}" for number in range(50)]
    whole = list(rows)
    whole.insert(place % 51, f'"{strange}","{strange}",')
    ready, alone = (
        make_ready(as_csv(tmp_path, name, ["id,size,y", *lines]), "y", "classes")
        for name, lines in (("whole", whole), ("alone", rows))
    )
    assert ready.columns == alone.columns
    assert [column.kind for column in ready.columns] == ["left out", "numbers"]
    np.testing.assert_array_equal(ready.X, alone.X)
    trusted, given = make_trusted_ready(tmp_path / "whole.csv", "y", alone)
    np.testing.assert_array_equal(trusted, alone.X)
    assert len(given.rows) == 50


def as_csv(folder, name, lines):
    (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder / f"{name}.csv"


@pytest.mark.parametrize(
    ("cell", "kind", "note"),
    [
        ("7\u00a0", "csv", "numbers but for cells such as '7\\xa0'"),
        ("\u0663", "csv", "numbers but for cells such as '\u0663'"),
        ("3", "parquet", "numbers that the file holds as text; save them as numbers"),
    ],
)
def test_numbers_that_pandas_does_not_know_are_named(cell, kind, note, tmp_path):
    frame = pd.DataFrame({"a": [*map(str, range(40)), cell], "y": [*["u", "v"] * 20, "u"]})
    table = files.read(written(frame, tmp_path, kind))
    assert found(table.frame, table.path)["a"].note.startswith(note)


@pytest.mark.parametrize("number", [-np.inf, 1e300])
def test_extreme_numbers_are_refused_by_column_and_row(number, messy, tmp_path):
    messy["age"] = messy["age"].astype(float)
    messy.loc[17, "age"] = number
    words = re.escape(f"has {number} in row 17 (counted from 0")
    with pytest.raises(ValueError, match=f"Column 'age' of .* {words}"):
        columns.understand(messy, tmp_path / "t.csv")


def test_nothing_to_learn_from(tmp_path):
    with pytest.raises(ValueError, match="no column to learn from"):
        columns.understand(pd.DataFrame({"a": [1, 1, 1], "b": ["x"] * 3}), tmp_path / "t.csv")


def test_lists_in_parquet_are_left_out(messy, tmp_path):
    messy["tags"] = [[1, 2]] * len(messy)
    table = files.read(written(messy, tmp_path, "parquet"))
    assert found(table.frame, table.path)["tags"].note == "neither numbers nor text"


@pytest.mark.parametrize("dtype", ["string", "boolean", "Int64"])
def test_missing_values_of_nullable_types_are_prepared(dtype, tmp_path):
    """scikit-learn's encoder does not know pandas.NA."""
    values = {"string": ["u", "v"], "boolean": [True, False], "Int64": [3, 4]}[dtype]
    column = pd.array([None, *values * 6], dtype=dtype)
    table = files.read(written(pd.DataFrame({"c": column}), tmp_path, "parquet"))
    about = columns.understand(table.frame, table.path)
    assert about[0].missing == 1
    _, X = columns.prepared(table.frame, about, columns.DENSE)
    assert np.isfinite(X).all()
    if dtype != "Int64":
        assert X[0].tolist() == [0, 0, 1]  # a category of its own


@pytest.mark.parametrize(
    ("values", "words"),
    [([1, 2], ["1", "2"]), ([1.0, np.nan], ["1", np.nan]), ([1.5, 2.0], ["1.5", "2"])],
)
def test_categories_that_are_all_numbers_become_text(values, words):
    found = columns.as_categories(pd.Series(values))
    assert [str(value) for value in found] == [str(word) for word in words]
    untouched = pd.Series([True, False])
    assert columns.as_categories(untouched) is untouched


def test_images_are_known_by_their_columns():
    digits = load_digits(as_frame=True).data
    images = pixels.find(digits)
    assert (images.side, images.largest) == (8, 16)
    assert images.columns == list(digits.columns)
    assert pixels.find(digits.set_axis([f"x{number}" for number in range(64)], axis=1)).side == 8
    assert pixels.find(digits.iloc[:, :63]) is None
    assert pixels.find(digits - 1) is None
    assert pixels.find(load_breast_cancer(as_frame=True).data.iloc[:, :16]) is None
    # Sixteen numbered columns are more likely sixteen measurements.
    few = digits.iloc[:, :16]
    assert pixels.find(few.set_axis([f"v{number}" for number in range(16)], axis=1)) is None


@pytest.mark.parametrize("dtype", [np.float64, np.uint8, np.float32])
def test_pixels_are_scaled_and_not_blown_up(tmp_path, dtype):
    digits = load_digits(as_frame=True).data.astype(dtype)
    about = columns.understand(digits, tmp_path / "t.csv")
    assert {column.kind for column in about} == {"pixels", "left out"}
    X = columns.preparation(about).fit_transform(digits)
    assert X.min() == 0
    assert X.max() == 1


def test_numbers_beside_pixels_are_no_pixels(tmp_path):
    table = load_digits(as_frame=True).data.assign(age=np.arange(1797) % 80 + 0.5)
    about = columns.understand(table, tmp_path / "t.csv")
    assert about[-1] == columns.Column("age", "numbers", "standardised", 0)
    assert "pixels" in {column.kind for column in about}
