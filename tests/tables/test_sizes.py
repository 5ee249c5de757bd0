"""What a file unpacks to is looked at before it is unpacked, and what has no size is not opened."""

import io
import os
import resource
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from scipy import sparse

from untuned.tables import decisions, files, group_files, row_files

TABLE = Path("train.csv")


def features(path):
    return row_files.features(path, 2, TABLE)


def probabilities(path):
    return row_files.probabilities(path, 2, TABLE, np.array(["a", "b"]))


def labels_of_a_matrix(path):
    np.save(path.with_name("matrix.npy"), np.eye(2))
    return row_files.matrix(path.with_name("matrix.npy"), str(path))


READERS = {
    "table": files.read,
    "features": features,
    "probabilities": probabilities,
    "matrix": lambda path: row_files.matrix(path, "y"),
    "labels": labels_of_a_matrix,
    "decisions": lambda path: decisions.read(path, None, None, TABLE, ()),
    "groups": lambda path: group_files.read(path, [], TABLE),
}


@pytest.fixture
def unpacked_little():
    """The most memory this process has taken does not grow by much."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # kilobytes


def refused(read, path, words="GB of memory"):
    with pytest.raises(ValueError, match=words) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", READERS)
def test_pipes_and_devices_are_not_opened(name, kind, tmp_path):
    path = tmp_path / ("rows.npz" if name in ("features", "probabilities", "matrix") else "rows")
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    refused(READERS[name], path, "pipe or a device|there is no file")


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_a_text_that_all_rows_share(kind, tmp_path, unpacked_little):
    """Of ten megabytes, written once and shared by 12,000 rows, as 0.5 MB of file."""
    path = tmp_path / "bomb.parquet"
    texts = pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(12_000, np.int32)), pa.array(["x" * 10_000_000]).cast(kind)
    )
    table = pa.table({"text": texts, "y": ["a", "b"] * 6_000})
    parquet.write_table(table, path, store_schema=False)
    assert path.stat().st_size < 1_000_000
    refused(files.read, path)
    refused(lambda each: files.read_own(tmp_path, each.name), path)


def archive_of(path, name, shape):
    """Zeros, which pack a thousandfold."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        header = io.BytesIO()
        about = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, about)
        with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
            file.write(header.getvalue())
            for _ in range(int(np.prod(shape)) // 2**20):
                file.write(bytes(2**20))


@pytest.mark.long
@pytest.mark.parametrize("name", ["features", "probabilities", "matrix"])
def test_an_archive_of_zeros(name, tmp_path, unpacked_little, monkeypatch):
    path = tmp_path / "bomb.npz"
    archive_of(path, "y" if name == "matrix" else "x", (2**10, 2**20))
    monkeypatch.setattr("untuned.util.memory.available", lambda: 2**32)
    assert path.stat().st_size < 2**21
    refused(READERS[name], path)


@pytest.mark.parametrize("name", ["features", "probabilities"])
@pytest.mark.parametrize("kind", ["csc", "csr", "coo"])
def test_a_sparse_matrix_that_claims_many_rows_or_columns(name, kind, tmp_path, unpacked_little):
    path = tmp_path / "bomb.npz"
    shape = (2, 2**40) if kind == "csr" else (2**40, 2)
    found = sparse.coo_matrix(([1.0], ([0], [1])), shape=shape)
    sparse.save_npz(path, found.asformat(kind))
    refused(READERS[name], path)


def test_probabilities_are_not_made_dense_before_their_shape_is_known(tmp_path, unpacked_little):
    path = tmp_path / "wide.npz"
    sparse.save_npz(path, sparse.csr_matrix((2, 2**28)))
    refused(probabilities, path, "columns; expected 2")
