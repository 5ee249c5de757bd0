"""Odd input by the thousand: `minimize` and every estimator give a result or say what is wrong.

A few examples in the default suite, the same every time; `make fuzz` makes thousands of new ones.
"""

import traceback
import warnings

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import untuned
from libraries import convert
from refusals import assert_one_sentence, examples
from untuned.estimators import (
    BilevelLogisticRegression,
    BilevelRidge,
    CoresetSelector,
    LabelCleaner,
)
from untuned.ops import leaves_of
from untuned.run.result import STATUSES

FLOATS = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
OTHERS = [np.int64, np.uint8, bool, np.complex64, object, "U3", "datetime64[s]"]
VALUES = [0.0, 1.0, -2.5, 1e-40, 5e-324, 6e-8, 1e30, -3e38, 1e300, np.nan, np.inf, -np.inf]
SHAPES = [(), (1,), (3,), (2, 2), (0,), (2, 0, 1), (1, 1, 1, 1), (5,)]


@st.composite
def arrays(draw, dtypes, values, shapes):
    dtype, shape = draw(st.sampled_from(dtypes)), draw(st.sampled_from(shapes))
    size = int(np.prod(shape))
    numbers = draw(st.lists(st.sampled_from(values), min_size=size, max_size=size))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            array = np.array(numbers, np.float64).reshape(shape).astype(dtype)
        except (TypeError, ValueError):  # no such conversion
            array = np.zeros(shape, np.float32)
    layout = draw(st.sampled_from(["plain", "reversed", "fortran", "strided", "read-only"]))
    if layout == "reversed" and array.ndim:
        array = array[::-1]
    elif layout == "fortran":
        array = np.asfortranarray(array)
    elif layout == "strided" and array.ndim:
        array = np.repeat(array, 2, axis=-1)[..., ::2]
    elif layout == "read-only":
        array = array.copy()
        array.setflags(write=False)
    return array


def trees(leaves):
    """Arrays, and dicts, tuples and lists of them, empty ones too."""
    return st.recursive(
        leaves,
        lambda inside: st.one_of(
            st.lists(inside, max_size=2),
            st.tuples(inside),
            st.dictionaries(st.sampled_from(["a", "b", "<c>", ""]), inside, max_size=2),
        ),
        max_leaves=4,
    )


def as_torch(tree, draw):
    """The same tree of tensors, some of them not contiguous; what torch has not stays NumPy."""
    if isinstance(tree, dict):
        return {name: as_torch(part, draw) for name, part in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(as_torch(part, draw) for part in tree)
    if tree.dtype == ml_dtypes.bfloat16:
        tensor = torch.tensor(tree.astype(np.float32)).bfloat16()
    elif tree.dtype.kind in "OUM":
        return tree
    else:
        tensor = torch.tensor(tree.copy())
    odd = draw(st.sampled_from(["plain", "expanded", "transposed", "wants grad"]))
    if odd == "expanded" and tensor.numel() == 1:
        tensor = tensor.reshape(1).expand(3)
    elif odd == "transposed" and tensor.ndim > 1:
        tensor = tensor.transpose(0, -1)
    elif odd == "wants grad" and tensor.is_floating_point():
        tensor.requires_grad_()
    return tensor


def total(tree, weight):
    """A sum over all leaves that any tree has."""
    return sum(((leaf - weight) ** 2).sum() for leaf in leaves_of(tree))


def sum_of(batch):
    return 0.0 if batch is None else sum((1.0 * leaf).sum() for leaf in leaves_of(batch))


def outer(x, y, batch=None):
    return total(y, 1.0) + 0.1 * total(x, 0.0) + 0.0 * sum_of(batch)


def inner(x, y, batch=None):
    return total(y, sum(leaf.sum() for leaf in leaves_of(x))) + 0.0 * sum_of(batch)


@st.composite
def problems(draw, library, mostly_right):
    dtype = draw(st.sampled_from(FLOATS[:2]))
    dtypes = [dtype] if mostly_right else [*FLOATS, *OTHERS]
    values = VALUES[:9] if mostly_right else VALUES
    leaves = arrays(dtypes, values, SHAPES)
    tree = trees(leaves)
    start = {name: draw(tree) for name in ("x0", "y0")}
    rows = draw(st.integers(1, 4))
    data = arrays([*FLOATS, np.int64, bool], values[:7], [(rows,), (rows, 2), (rows, 0)])
    start |= {name: draw(st.none() | trees(data)) for name in ("outer_data", "inner_data")}
    if library == "torch":
        start = {name: as_torch(part, draw) for name, part in start.items() if part is not None}
    return start | {
        "outer": outer,
        "inner": inner,
        "method": draw(st.sampled_from(["auto", "s-tfbo", "d-tfbo", "soba", "bsa", "saba"])),
        "batch_size": draw(st.none() | st.integers(1, 3) | st.tuples(st.integers(1, 2), st.none())),
        "constraint": draw(st.sampled_from([None, None, "simplex", "nonnegative", (-1.0, 2.0)])),
        "tol": draw(st.sampled_from([None, 1e-3])),
        "max_steps": 3,
    }


def assert_result_or_sentence(arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = untuned.minimize(**arguments)
        except (ValueError, TypeError) as error:
            assert_one_sentence(str(error))
            return
    assert result.status in STATUSES
    for name in ("x", "y"):
        for before, after in paired(arguments[name + "0"], getattr(result, name)):
            assert tuple(np.shape(before)) == tuple(np.shape(after))
            assert before.dtype == after.dtype
            plain = after.detach() if hasattr(after, "detach") else after
            assert np.isfinite(np.asarray(plain)).all()


def paired(before, after):
    """The leaves of two trees at the same places; a dict may have changed its order."""
    assert type(before) is type(after) or not isinstance(before, dict | list | tuple)
    if isinstance(before, dict):
        assert set(before) == set(after)
        return [pair for name in before for pair in paired(before[name], after[name])]
    if isinstance(before, list | tuple):
        parts = zip(before, after, strict=True)
        return [pair for part in parts for pair in paired(*part)]
    return [(before, after)]


@pytest.mark.long
@examples(60)
@given(st.booleans().flatmap(lambda right: problems("torch", right)))
def test_minimize_on_torch(arguments):
    assert_result_or_sentence(arguments)


@examples(15)
@given(st.integers(0, 4).flatmap(lambda right: problems("jax", right == 0)))
@pytest.mark.long
def test_minimize_on_jax(arguments):
    assert_result_or_sentence(arguments)


ESTIMATORS = {
    "logistic": lambda: BilevelLogisticRegression(max_steps=3),
    "ridge": lambda: BilevelRidge(max_steps=3),
    "cleaner": lambda: LabelCleaner(max_steps=3),
    "coreset": lambda: CoresetSelector(size=2, max_steps=3),
}


@st.composite
def tables(draw):
    rows = draw(st.sampled_from([30, 12, 30, 5, 2, 1, 0]))
    columns = draw(st.sampled_from([3, 1, 3, 0]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    X = rng.standard_normal((rows, columns)) * draw(st.sampled_from([1, 1e-300, 1, 1e-40, 1, 1e30]))
    for _ in range(draw(st.integers(0, 2)) if X.size else 0):
        X.flat[draw(st.integers(0, X.size - 1))] = draw(st.sampled_from(VALUES))
    kinds = [np.float64, np.float32, np.float16, np.int64, bool, object, "U5"]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X = X.astype(draw(st.sampled_from([*kinds[:1] * 5, *kinds])))
    if draw(st.booleans()):
        X = np.asfortranarray(X)
    labels = draw(
        st.sampled_from(
            [
                rng.integers(0, 2, rows), rng.integers(0, 3, rows), rng.standard_normal(rows),
                np.zeros(rows), rng.choice(["a", "b"], rows), np.full(rows, np.nan),
                rng.standard_normal((rows, 2)), 1e30 * rng.standard_normal(rows),
                rng.integers(0, 2, rows + 1), rng.choice([True, False], rows),
                np.array([None, 1] * rows, object)[:rows],
            ]
        )
    )  # fmt: skip
    return X, labels


@examples(5)
@given(tables())
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.long
def test_estimators(name, table):
    """What scikit-learn's own checks say is left as it is; the rest is said by us."""
    estimator = ESTIMATORS[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            estimator.fit(*table)
        except (ValueError, TypeError) as error:
            last = traceback.extract_tb(error.__traceback__)[-1].filename
            assert any(part in last for part in ("sklearn", "untuned")), (last, str(error))  # noqa: PT017
            return
    if name == "coreset":
        assert len(estimator.indices_) == 2
        assert np.isfinite(estimator.weights_).all()
        return
    assert np.isfinite(estimator.coef_).all()
    if name == "cleaner":
        assert np.isfinite(estimator.quality_).all()


FOUND = {  # by the tests above, before they were mended
    "equal rows": (LabelCleaner(), np.zeros((4, 1)), np.array([0, 1] * 2), "the same features in"),
    "text targets": (BilevelRidge(), np.eye(3), np.array(["a", "b", "c"]), "y holds "),
    "no targets": (BilevelRidge(), np.eye(3), np.array([1.0, None, 2.0]), "None in 1 of 3 targets"),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_is_refused_with_a_sentence(name):
    estimator, X, y, words = FOUND[name]
    with pytest.raises(ValueError, match=words) as caught:
        estimator.fit(X, y)
    assert_one_sentence(str(caught.value))


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array], ids=["dense", "sparse"])
def test_numbers_too_large_to_compute_with(name, kind):
    X = np.random.default_rng(0).standard_normal((12, 2))
    X[9, 1] = -1e300
    with pytest.raises(ValueError, match=r"X holds a number of size 1e\+300; expected numbers"):
        ESTIMATORS[name]().fit(kind(X), np.arange(12) % 2)


def test_norms_whose_squares_overflow_are_no_error(library):
    """Python's floats, which are the scalars of torch, raise where a power overflows."""
    big = convert(library, np.array([1e200, -1e200]))
    rows = convert(library, np.ones((6, 1)))
    result = untuned.minimize(
        lambda x, y, batch: (y**2).sum() * batch.mean(),
        lambda x, y, batch: ((y - x) ** 2).sum() * batch.mean(),
        big, big, inner_data=rows, outer_data=rows, batch_size=2, max_steps=3,
    )  # fmt: skip
    assert result.status == "diverged"
