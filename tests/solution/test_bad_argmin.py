"""What cannot be meant is refused in one sentence before anything is compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import untuned
from refusals import array, every_library, f, g, inf, nan, refused


def argmin(library, **changes):
    start = {name: array(library, [0.25, 0.75]) for name in ("x", "y0")}
    return untuned.argmin(**{"inner": g} | start | changes)


@every_library
@pytest.mark.parametrize("value", [None, 3.0, "g"], ids=repr)
def test_inner_is_not_callable(library, value):
    with refused(f"inner is a {type(value).__name__}; ", "expected a function of (x, y)"):
        argmin(library, inner=value)


@every_library
@pytest.mark.parametrize(
    ("function", "came"),
    [
        (lambda x, y: y - x, "shape (2,) and type float32"),
        (lambda x, y: (y > x).all(), "type bool"),
        (lambda x, y: (g(x, y),), "tuple"),
        (lambda x, y: None, "None; "),
    ],
    ids=["vector", "bool", "tuple", "None"],
)
def test_inner_does_not_give_one_real_number(library, function, came):
    with refused("inner(x, y) gave ", came, "expected one real number"):
        argmin(library, inner=function)


@every_library
def test_arguments_and_data_do_not_go_together(library):
    with refused("inner does not take", "because data were given."):
        argmin(library, inner=lambda x, y: g(x, y), data=array(library, [1.0, 2.0]))
    with refused("inner does not take", "because no data were given."):
        argmin(library, inner=lambda x, y, data: g(x, y))


@every_library
@pytest.mark.parametrize("name", ["x", "y0"])
@pytest.mark.parametrize(
    ("values", "dtype", "said"),
    [
        ([1, 2], "int32", "has dtype int32; expected float32 or float64"),
        ([1.0, 2.0], "float64", "expected one dtype for all of x and y0"),
        ([1.0, nan], "float32", "has nan at index (1,) (1 such entries)"),
        ([inf, 1.0], "float32", "has inf at index (0,)"),
        ([], "float32", "holds no numbers"),
    ],
    ids=["integers", "two dtypes", "NaN", "infinite", "empty"],
)
def test_variables(library, name, values, dtype, said):
    with refused(name, said):
        argmin(library, **{name: array(library, values, dtype)})


@every_library
def test_data(library):
    three = lambda x, y, data: g(x, y)
    with refused("data['a'] has nan at index (0,)"):
        argmin(library, inner=three, data={"a": array(library, [nan, 1.0])})
    with refused("data has dtype str; expected real numbers"):
        argmin(library, inner=three, data=np.array(["a", "b"]))
    with refused("data holds no array"):
        argmin(library, inner=three, data={})


def test_two_libraries():
    with refused("y0 holds JAX arrays and x holds torch tensors"):
        argmin("torch", y0=jnp.zeros(2))
    with refused("data holds torch tensors and x holds JAX arrays"):
        argmin("jax", inner=lambda x, y, data: g(x, y), data=array("torch", [1.0]))


@every_library
def test_strengths_that_are_no_numbers(library):
    with refused("l1 has dtype str; expected real numbers"):
        argmin(library, l1="strong")
    with refused("l1 holds ", "expected NumPy arrays or the library of x"):
        argmin(library, l1=array("jax" if library == "torch" else "torch", [1.0, 1.0]))


def test_no_entries_on_a_simplex():
    start = {"a": np.array([0.25, 0.75]), "none": np.zeros(0)}
    with refused("y0['none'] has no entries", "leave it out of y0."):
        untuned.argmin(lambda x, y: g(x, y["a"]), np.ones(2), start, constraint="simplex")


@every_library
@pytest.mark.parametrize(
    "constraint", ["box", 3, (0.0,), (0.0, "1"), [0.0, 1.0], abs, (True, 2.0)], ids=repr
)
def test_unknown_constraint(library, constraint):
    with refused("constraint=", " is not known; expected"):
        argmin(library, constraint=constraint)


@every_library
@pytest.mark.parametrize("constraint", [(1.0, 0.0), (inf, None), (nan, 1.0)], ids=repr)
def test_empty_constraint(library, constraint):
    with refused("constraint=", " leaves no finite y"):
        argmin(library, constraint=constraint)


@every_library
@pytest.mark.parametrize(
    ("constraint", "y0"),
    [("nonnegative", [-0.1, 1.0]), ((0.0, 0.5), [0.2, 0.6]), ("simplex", [0.5, 0.6])],
    ids=repr,
)
def test_start_is_outside(library, constraint, y0):
    with refused("y0 is outside of constraint=", "give a y0 inside."):
        argmin(library, constraint=constraint, y0=array(library, y0))


def test_too_many_variables_for_a_constraint():
    start = {name: array("torch", np.ones(300)) for name in ("x", "y0")}
    with refused("constraint='nonnegative' was given with 300 variables", "up to 256"):
        argmin("torch", constraint="nonnegative", **start)


@every_library
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("tol", 0.0, "expected a number between 0 and 1"),
        ("tol", "small", "expected a number between 0 and 1"),
        ("tol", True, "expected a number between 0 and 1"),
        ("max_steps", 0, "expected a whole number from 1 up"),
        ("max_steps", 2.5, "expected a whole number from 1 up"),
        ("on_failure", "ignore", "all names are nan, raise, warn"),
    ],
)
def test_settings(library, name, value, said):
    with refused(said):
        argmin(library, **{name: value})


@every_library
def test_hypergradient(library):
    x, y0 = (array(library, [0.0, 0.0]) for _ in "xy")
    with refused("outer is a NoneType"):
        untuned.hypergradient(None, g, x, y0)
    with refused("outer(x, y) gave shape (2,)"):
        untuned.hypergradient(lambda x, y: y, g, x, y0)
    with refused("outer_data has nan"):
        untuned.hypergradient(f, g, x, y0, outer_data=array(library, [[nan, 1.0]]))
    with refused("inner does not take", "because no data were given."):
        untuned.hypergradient(f, lambda x, y, data: g(x, y), x, y0)


def test_what_a_shape_tells_is_refused_inside_jit_as_well():
    with refused("inner(x, y) gave shape (2,)"):
        jax.jit(lambda x: untuned.argmin(lambda x, y: y - x, x, jnp.zeros(2)))(jnp.zeros(2))


@pytest.mark.parametrize("order", [">f4", ">f8"])
def test_any_byte_order(order):
    x, rows = np.array([1.0, 3.0], order), np.array([1, 2], ">i4")
    inner = lambda x, y, rows: ((y - x * rows) ** 2).sum()
    y = untuned.argmin(inner, x, np.zeros(2, order), data=rows)
    np.testing.assert_allclose(y, [1, 6], rtol=1e-6)
    assert y.dtype == np.dtype(order).newbyteorder("=")
    Q, c = np.eye(2).astype(order), -np.ones(2, order)
    np.testing.assert_allclose(untuned.quadratic_program(Q, c), [1, 1], rtol=1e-6)


def test_whole_numbers_too_large_for_their_dtype():
    inner, rows = lambda x, y, rows: ((y - rows / 2.0**40) ** 2).sum() * x, np.array([2**40])
    with refused("holds 1099511627776, which int32 cannot hold"):
        untuned.argmin(inner, np.float32(1), np.zeros(1, np.float32), data=rows)
    assert untuned.argmin(inner, 1.0, np.zeros(1), data=rows) == pytest.approx(1)
