"""What belongs to the rows of a table and comes in a file of its own: embeddings, probabilities."""

from __future__ import annotations

import zipfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from untuned.tables import files
from untuned.tables.files import Table
from untuned.util import damage, limits, memory
from untuned.util.wording import brief, reason

PARTS = ("data", "indices", "indptr", "row", "col", "shape", "format", "_is_array")  # save_npz's
SUM_TOL = 1e-3  # probabilities written with few digits


def features(path: Path, rows: int, of: Path) -> Any:
    """Embeddings, float32: a dense array, or a CSR matrix that SciPy's `save_npz` wrote."""
    found = _array(path)
    _check_rows(path, found, rows, of)
    if found.shape[1] == 0:
        raise ValueError(f"{path} has no columns; expected at least one feature per row.")
    limits.check(found, str(path))
    return found.astype(np.float32)


def matrix(path: Path, label: str) -> tuple[Any, Table, str]:
    """A matrix that comes without a table, float32; its labels as a table, and their column.

    `label` is the name of an array in the same file, or that of a file with a label for each row:
    .npy, or a table of one column.
    """
    import pandas

    _check_size(path)
    given = Path(label)
    values = _labels(path, label) if zipfile.is_zipfile(path) else None
    found = _array(path, label if values is not None else None)
    if values is None and not given.is_file():
        raise ValueError(
            f"{path} holds no array {brief(label)} and there is no file of that name; name an "
            "array of labels beside the matrix, or a file with one label for each row, by "
            "--label."
        )
    if values is None and given.suffix == ".npy":
        _check_size(given)
        values = _labels(given)
    if values is None:
        table = files.read(given)
        shape: tuple[int, ...] = (len(table.frame),)
        if table.frame.shape[1] != 1:
            raise ValueError(
                f"{given} has {table.frame.shape[1]} columns; expected one, a label for each row "
                "of the matrix, or give the table itself with --features."
            )
    else:
        shape = values.shape
        # An array of another shape is no column, and refused below.
        table = files.made(path, pandas.DataFrame({label: values.ravel()}))
    if shape != (found.shape[0],):
        raise ValueError(
            f"The labels {brief(label)} of {path} have the shape {shape}; expected "
            f"({found.shape[0]:,},), one label for each row."
        )
    limits.check(found, str(path))
    return found.astype(np.float32), table, str(table.frame.columns[0])


def _labels(path: Path, name: str | None = None) -> np.ndarray | None:
    """The array of a .npy file; or that of a name in an archive, if it is beside the matrix."""

    def unread(error: Exception) -> str:
        what = path if name is None else f"The array {brief(name)} of {path}"
        return (
            f"{what} could not be read ({reason(error, 80)}); expected an array of text or "
            "numbers, for example by numpy.save(file, labels.astype(str)), and no Python objects."
        )

    with damage.told(unread), path.open("rb") as file:
        if name is None:
            return np.lib.format.read_array(file)  # no archive that is called .npy
        with np.load(file) as archive:
            return archive[name] if name in archive.files and name not in PARTS else None


def probabilities(path: Path, rows: int, of: Path, classes: np.ndarray) -> np.ndarray:
    """One row per row of the table and one column per class, in the order of `classes`.

    A table's columns are put in order by their names; arrays must be in the order already.
    """
    is_array = path.suffix in (".npy", ".npz")
    found = _array(path) if is_array else _by_name(path, classes)
    _check_rows(path, found, rows, of)
    if found.shape[1] != len(classes):
        raise ValueError(
            f"{path} has {found.shape[1]:,} columns; expected {len(classes)}, one for each class "
            f"in the order {brief(classes.tolist())}."
        )
    found = found.toarray() if hasattr(found, "toarray") else found
    sums = found.sum(axis=1)
    wrong = np.flatnonzero((np.abs(sums - 1) > SUM_TOL) | (found < 0).any(axis=1))
    if len(wrong):
        raise ValueError(
            f"{path} has {brief(found[wrong[0]].round(4).tolist())} in row {wrong[0]} (counted "
            "from 0); expected probabilities from 0 to 1 that add up to 1."
        )
    return found / sums[:, None]


def _by_name(path: Path, classes: np.ndarray) -> np.ndarray:
    """The columns of a table, each called as the class it is of."""
    frame = files.read(path).frame
    names = [str(each) for each in classes]
    if sorted(frame.columns) != sorted(names):
        raise ValueError(
            f"{path} has the columns {brief(list(frame.columns))}; expected one for each class, "
            f"which are {brief(names)}."
        )
    try:
        values = frame[names].to_numpy(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} holds something else than numbers; {reason(error)}.") from error
    return _finite(path, values)


def _array(path: Path, beside: str | None = None) -> Any:
    """The one array of a file, or its sparse matrix, `beside` another; nothing in a file is run."""
    _check_size(path)
    with damage.told(partial(_unread, path), own=str(path)):
        return _finite(path, _read(path, beside))


def _unread(path: Path, error: Exception) -> str:
    return (
        f"{path} could not be read ({reason(error, 80)}); expected an array in a .npy or .npz "
        "file, or a sparse matrix as scipy.sparse.save_npz writes it."
    )


def _check_size(path: Path) -> None:
    """Refuse what would not fit into memory by what the file says, before it is unpacked."""
    files.check_regular(path)
    size = path.stat().st_size
    if zipfile.is_zipfile(path):
        with damage.told(partial(_unread, path)), zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())  # no more will be read
    memory.check(path, size)


def _read(path: Path, beside: str | None) -> Any:
    from scipy import sparse

    # Opened here, as NumPy leaves a file open that it cannot read.
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            return np.load(file)
    with path.open("rb") as file, np.load(file) as archive:
        if "indptr" in archive.files or "format" in archive.files:
            with path.open("rb") as again:
                found = sparse.load_npz(again)
            memory.check(path, 8 * sum(found.shape))  # few bytes can claim any number of rows
            return sparse.csr_matrix(found)
        names = [name for name in archive.files if name != beside]
        if len(names) != 1:
            raise ValueError(
                f"{path} holds {len(names)} arrays; expected one, with a row for each row of the "
                "table."
            )
        return archive[names[0]]


def _finite(path: Path, found: Any) -> Any:
    if found.ndim != 2 or found.dtype.kind not in "fiub":
        raise ValueError(
            f"{path} holds an array of shape {found.shape} and type {found.dtype}; expected two "
            "dimensions and numbers."
        )
    found = found if found.dtype in (np.float32, np.float64) else found.astype(np.float32)
    values = found.data if hasattr(found, "indptr") else found
    if not np.isfinite(values).all():
        raise ValueError(f"{path} holds numbers that are not finite; expected finite ones.")
    return found


def _check_rows(path: Path, found: Any, rows: int, of: Path) -> None:
    if found.shape[0] != rows:
        raise ValueError(
            f"{path} has {found.shape[0]:,} rows; expected {rows:,}, one for each row of {of} in "
            "the same order."
        )
