"""Data and batch sizes that cannot be meant are refused in one sentence."""

import numpy as np
import pytest
import scipy.sparse
import torch

from refusals import array, both_libraries, both_sides, inf, minimize, nan, refused, rows
from untuned.util.wording import brief


@both_libraries
@both_sides
def test_data_of_different_lengths(library, side):
    todo = f"expected the same leading axis for all arrays of {side}."
    data = {"X": rows(library, 6), "t": rows(library, 5)}
    with refused(f"{side}['X'] has 6 rows and {side}['t'] has 5; ", todo):
        minimize(library, **{side: data})
    with refused(f"{side}[0] has 6 rows and {side}[1] has 5; ", todo):
        minimize(library, **{side: (rows(library, 6), rows(library, 5))})


@both_libraries
@both_sides
@pytest.mark.parametrize("bad", [nan, inf, -inf])
@pytest.mark.parametrize("from_numpy", [False, True], ids=["own", "numpy"])
def test_data_are_not_finite(library, side, bad, from_numpy):
    values = np.ones((6, 2))
    values[4, 1] = bad
    data = values if from_numpy else array(library, values, "float32")
    todo = "expected finite numbers, so remove or fill them in."
    with refused(f"{side} has {bad} at index (4, 1) (1 such entr", todo):
        minimize(library, **{side: data})
    with refused(f"{side}['X'] has {bad} at index (4, 1)", todo):
        minimize(library, **{side: {"X": data}})


@both_libraries
@both_sides
def test_data_are_too_large_for_the_dtype_of_x0(library, side):
    # 1e300 is finite, but not in float32; NumPy must not warn about it on the way.
    values = np.ones((6, 2))
    values[4, 1] = 1e300
    with refused(side, "at index (4, 1)", "expected finite numbers"):
        minimize(library, **{side: values})


@both_libraries
@both_sides
@pytest.mark.parametrize("shape", [(), (0,), (0, 2)], ids=repr)
def test_data_have_no_rows(library, side, shape):
    todo = "expected at least one row along its leading axis."
    with refused(f"{side} has shape {shape}; ", todo):
        minimize(library, **{side: array(library, np.zeros(shape))})


@both_sides
@pytest.mark.parametrize("empty", [{}, [], ()], ids=repr)
def test_data_are_an_empty_tree(side, empty):
    with refused(f"{side} holds no array; ", "leave it out, or give arrays of rows."):
        minimize("numpy", **{side: empty})


@both_sides
@pytest.mark.parametrize(
    ("library", "other", "came"),
    [
        ("numpy", "torch", "holds torch tensors and x0 holds "),
        ("jax", "torch", "holds torch tensors and x0 holds JAX arrays; "),
        ("torch", "jax", "holds JAX arrays and x0 holds torch tensors; "),
    ],
)
def test_data_of_another_library(side, library, other, came):
    todo = "expected NumPy arrays or the library of x0, so convert it."
    with refused(f"{side} {came}", todo):
        minimize(library, **{side: rows(other)})
    with refused(f"{side}['X'] {came}", todo):
        minimize(library, **{side: {"X": rows(other)}})


@both_libraries
@both_sides
@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (np.array(["a", "b", "c"]), "str"),
        (["cat", "dog"], "str"),
        (np.array([{}, None, "a"], object), "object"),
        (np.array(["2020-01-01"], "datetime64[D]"), "datetime64[D]"),
    ],
    ids=["array of str", "list of str", "object", "dates"],
)
def test_data_are_not_numbers(library, side, data, dtype):
    todo = "expected real numbers, so encode it first, for example labels as 0, 1, 2."
    with refused(side, f"has dtype {dtype}; ", todo):
        minimize(library, **{side: data})


@both_libraries
@both_sides
@pytest.mark.parametrize("make", [scipy.sparse.csr_matrix, scipy.sparse.csr_array])
def test_data_are_sparse(library, side, make):
    came = f"{side}['X'] is SciPy's {make.__name__}; "
    with refused(came, "expected an array, so give its .toarray()."):
        minimize(library, **{side: {"X": make(np.eye(3))}})


@both_sides
def test_tensors_are_sparse(side):
    with refused(f"{side} is a tensor of layout torch.sparse_coo; ", "so give its .to_dense()."):
        minimize("torch", **{side: torch.eye(3).to_sparse()})


@both_libraries
@both_sides
def test_data_are_no_arrays(library, side):
    """A loader is what a torch user has at hand."""
    loader = torch.utils.data.DataLoader(torch.eye(3))
    with refused(f"{side} is a DataLoader; expected an array of real numbers."):
        minimize(library, **{side: loader})


@both_libraries
@both_sides
def test_data_are_masked(library, side):
    """Arrays of JAX and torch have no mask: masked entries counted like all others."""
    masked = np.ma.array(np.ones((6, 2)), mask=np.eye(6, 2))
    with refused(f"{side} holds an array with masked entries", "or give its .filled(value)."):
        minimize(library, **{side: {"X": masked}})


@both_libraries
@both_sides
def test_data_are_an_iterator(library, side):
    with refused(f"{side} holds a list_iterator, which can be read only once; ", "expected arrays"):
        minimize(library, **{side: iter([np.ones((6, 2))])})


@both_libraries
@both_sides
def test_data_are_lists_of_numbers(library, side):
    with refused(f"{side}[0][0] is the number 1.0; ", "with numpy.asarray"):
        minimize(library, **{side: [[1.0, 2.0], [3.0, 4.0]]})


@both_libraries
@both_sides
@pytest.mark.parametrize("from_numpy", [False, True], ids=["own", "numpy"])
def test_data_are_complex(library, side, from_numpy):
    data = array("numpy" if from_numpy else library, np.ones((6, 2)), "complex64")
    with refused(f"{side} has dtype complex64; ", "expected "):
        minimize(library, **{side: data})


@both_sides
def test_torch_data_on_another_device(side):
    todo = "expected one device for both, so move one of them."
    with refused(f"{side} is on meta and the variables are on cpu; ", todo):
        minimize("torch", **{side: torch.zeros(6, 2, device="meta")})


NOT_A_SIZE = (
    "is not usable; expected a whole number from 1 up, a pair (inner, outer) of them, "
    "or None for all rows."
)


@pytest.mark.parametrize(
    "size",
    [0, -1, 2.0, 2.5, nan, True, "all", np.int64(0), (0, 2), (2, 0), (2.0, 2), (2, True),
     (None, -1), (1, 2, 3), (2,), [2, "2"], {}],
    ids=repr,
)  # fmt: skip
def test_batch_size_is_not_a_count(size):
    data = {"inner_data": rows("numpy", 6), "outer_data": rows("numpy", 4)}
    with refused(f"batch_size={brief(size)} {NOT_A_SIZE}"):
        minimize("numpy", **data, batch_size=size)


@pytest.mark.parametrize("size", [(2, 0), (2, 1.5)], ids=repr)
def test_batch_size_is_checked_also_for_a_side_without_data(size):
    with refused(f"batch_size={brief(size)} {NOT_A_SIZE}"):
        minimize("numpy", inner_data=rows("numpy"), batch_size=size)


@pytest.mark.parametrize(
    ("size", "came", "side", "count"),
    [
        (7, 7, "inner_data", 6),
        (5, 5, "outer_data", 4),
        ((7, 4), 7, "inner_data", 6),
        ((6, 5), 5, "outer_data", 4),
        ((None, 5), 5, "outer_data", 4),
        ((7, None), 7, "inner_data", 6),
    ],
)
def test_batch_size_above_the_rows(size, came, side, count):
    data = {"inner_data": rows("numpy", 6), "outer_data": rows("numpy", 4)}
    todo = f"give at most {count}, or None for all rows."
    with refused(f"batch_size={came} is more than the {count} rows of {side}; ", todo):
        minimize("numpy", **data, batch_size=size)


@pytest.mark.parametrize("size", [4, (4, 4), (None, 4)], ids=repr)
def test_batch_size_without_data(size):
    todo = "give inner_data or outer_data, or leave batch_size out."
    with refused(f"batch_size={size!r} was given without data; ", todo):
        minimize("numpy", batch_size=size)
