"""Methods and settings that cannot be meant are refused in one sentence."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import untuned
from refusals import array, both_libraries, every_library, f, g, inf, minimize, nan, refused, rows
from untuned.solvers import DTFBO, STFBO
from untuned.util.wording import brief


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("stfbo", "s-tfbo"),
        ("S-TFBO", "s-tfbo"),
        ("dtfbo", "d-tfbo"),
        ("d_tfbo", "d-tfbo"),
        ("DTFBO", "d-tfbo"),
    ],
)
def test_unknown_method(name, nearest):
    came = f"There is no method {name!r}; the nearest name is {nearest!r}, and all names are "
    with refused(came, "d-tfbo", "s-tfbo"):
        minimize("numpy", method=name)
    with refused(came):
        untuned.solvers.get(name)


def test_unknown_method_that_is_near_to_none():
    with refused("There is no method ''; the nearest name is ", "all names are abo, "):
        minimize("numpy", method="")


@pytest.mark.parametrize(
    "method",
    [
        None,
        3,
        object(),
        {"name": "d-tfbo"},
        # A class in place of a solver is what `solvers.get` gives and easily forgotten.
        DTFBO,
        STFBO,
        # Some of what a solver has is not enough.
        SimpleNamespace(init=f, step=f, loops="single"),
        torch.optim.SGD([torch.zeros(2, requires_grad=True)]),
    ],
    ids=["None", "int", "object", "dict", "DTFBO", "STFBO", "half", "optimizer"],
)
def test_method_is_not_a_solver(method):
    todo = "expected a name such as 'd-tfbo', or a solver such as untuned.solvers.DTFBO()."
    with refused("method=", " is not a method; ", todo):
        minimize("numpy", method=method)


@pytest.mark.parametrize(
    ("name", "values", "least"),
    [
        ("max_steps", [0, -1, 1.5, 10.0, nan, inf, True, None, "10", [10]], 1),
        ("seed", [-1, 1.5, nan, True, None, "0", np.float32(1)], 0),
        ("eval_every", [0, -1, 1.5, nan, True, "1"], 1),
    ],
    ids=["max_steps", "seed", "eval_every"],
)
def test_setting_is_not_a_whole_number(name, values, least):
    for value in values:
        shown = f"{name}={brief(value)}"
        with refused(f"{shown} is not usable; expected a whole number from {least} up, "):
            minimize("numpy", **{name: value})


@pytest.mark.parametrize("name", ["tol", "max_seconds"])
@pytest.mark.parametrize("value", [0, 0.0, -1, -1e-3, nan, -inf, True, "1", [1.0]], ids=repr)
def test_setting_is_not_a_positive_number(name, value):
    with refused(f"{name}={value!r} is not usable; expected a number above zero, "):
        minimize("numpy", **{name: value})


@pytest.mark.parametrize("callback", [1, True, "print", [print]], ids=repr)
def test_callback_is_not_callable(callback):
    came = f"callback is a {type(callback).__name__}; "
    with refused(came, "expected a function of one snapshot."):
        minimize("numpy", callback=callback)


CONSTRAINTS = (
    'expected "simplex", "nonnegative", a pair of numbers (low, high), or a function that '
    "projects x."
)


@pytest.mark.parametrize(
    "constraint",
    ["simplx", "", 1.0, True, (None, None), (0.0,), (0.0, 1.0, 2.0), ("0", "1"), [0.0, "1"],
     {"low": 0.0}],
    ids=repr,
)  # fmt: skip
def test_constraint_is_not_known(constraint):
    with refused(f"constraint={constraint!r} is not known; ", CONSTRAINTS):
        minimize("numpy", constraint=constraint)


def test_constraint_has_its_ends_swapped():
    came = "constraint=(1.0, 0.0) has its low end above its high end; "
    with refused(came, "give (low, high) with low <= high."):
        minimize("numpy", constraint=(1.0, 0.0))


@pytest.mark.parametrize(
    "constraint", [(nan, None), (None, nan), (0.0, nan), (inf, None), (None, -inf)], ids=repr
)
def test_constraint_holds_no_finite_point(constraint):
    with refused(f"constraint={constraint!r} "):
        minimize("numpy", constraint=constraint)


@both_libraries
@pytest.mark.parametrize(
    "projection",
    [
        lambda x: {"a": x["a"][:1]},
        lambda x: {"b": x["a"]},
        lambda x: x["a"],
        lambda x: None,
    ],
    ids=["shape", "key", "bare", "None"],
)
def test_projection_changes_the_tree_of_x(library, projection):
    came = "The projection given as constraint changed "
    with refused(came, "expected the same tree of arrays, each of its own shape."):
        minimize(
            library,
            outer=lambda x, y: f(x["a"], y),
            inner=lambda x, y: g(x["a"], y),
            x0={"a": array(library, [0.0, 0.0])},
            constraint=projection,
        )


@both_libraries
def test_projection_gives_nan(library):
    with refused("constraint", "nan", "expected "):
        minimize(library, constraint=lambda x: x * nan)


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"method": np.zeros((40, 40))}, "method="),
        ({"method": "d-tfbo" * 100}, "There is no method"),
        ({"max_steps": np.arange(900.0).reshape(30, 30)}, "max_steps="),
        # Bounds entry by entry are a fair wish, and the answer must not print them all.
        ({"constraint": (np.zeros(99), np.ones(99))}, "constraint="),
        ({"batch_size": list(range(500)), "inner_data": np.ones((6, 2))}, "batch_size="),
    ],
    ids=["method", "name", "max_steps", "constraint", "batch_size"],
)
def test_long_values_are_cut_short(options, start):
    with refused(start):  # which also says that the sentence is short and on one line
        minimize("numpy", **options)


POSITIVE = ("alpha0", "beta0", "gamma0", "eta_x", "eta_y", "eta_v")


@pytest.mark.parametrize(
    ("solver", "field"),
    [(STFBO, field) for field in POSITIVE]
    + [(DTFBO, field) for field in (*POSITIVE, "c_y", "c_v")],
    ids=lambda value: getattr(value, "__name__", value),
)
@pytest.mark.parametrize("value", [0, 0.0, -1.0, nan, inf, True, "1", None], ids=repr)
def test_hyperparameter_is_not_positive(solver, field, value):
    came = f"{solver.__name__} was given {field}={value!r}; "
    word = " or 'auto'" if field in ("alpha0", "beta0", "gamma0") else ""
    with refused(came, f"expected a finite number above zero{word}, for example {field}=1.0."):
        solver(**{field: value})


@pytest.mark.parametrize("field", ["inner_steps", "linear_steps", "cap", "horizon"])
@pytest.mark.parametrize("value", [0, -1, 1.5, 10.0, nan, True, "10"], ids=repr)
def test_loop_count_is_not_a_count(field, value):
    came = f"DTFBO was given {field}={value!r}; "
    word = " or 'anytime'" if field == "horizon" else ""
    with refused(came, f"expected a whole number from 1 up{word}, for example {field}=10."):
        DTFBO(**{field: value})


def test_cap_is_none():
    # None means "no fixed count" elsewhere; a while-loop without a cap need not end.
    with refused("DTFBO was given cap=None; ", "expected a whole number from 1 up"):
        DTFBO(cap=None)


@every_library
@pytest.mark.parametrize("check", [untuned.check_problem, untuned.check_hypergradient])
def test_the_checks_of_a_problem_refuse_the_same(library, check):
    good, bad = array(library, [0.0, 0.0]), array(library, [0.0, nan])
    with refused("y0 has nan at index (1,)", "expected finite numbers"):
        check(f, g, good, bad)
    with refused("outer(x, y) gave shape (2,)", "expected one real number"):
        check(lambda x, y: y, g, good, good)


# Unusual input that is right must not be refused, or crash in a way no check speaks of


@pytest.mark.parametrize("method", ["s-tfbo", "d-tfbo"])
def test_numbers_of_numpy_are_as_good_as_pythons(method, tmp_path):
    result = minimize(
        "torch",  # no library sees them, and torch need not compile
        method=method,
        max_steps=np.int64(2),
        seed=np.int64(1),
        eval_every=np.int32(1),
        inner_data=rows("torch"),
        batch_size=np.int64(2),
        tol=np.float32(1e-9),
        max_seconds=np.float32(100),
        checkpoint=tmp_path / "run",
    )
    assert result.steps == 2


@pytest.mark.parametrize("kind", ["reversed", "read-only", "big-endian", "longdouble"])
def test_numpy_data_of_unusual_layout(kind):
    # torch refuses or warns about these arrays, and JAX takes them; a run must just go.
    data = np.arange(12.0).reshape(6, 2)
    if kind == "reversed":
        data = data[::-1]
    elif kind == "read-only":
        data.setflags(write=False)
    else:
        data = data.astype({"big-endian": ">f8", "longdouble": np.longdouble}[kind])
    assert minimize("torch", inner_data=data, method="s-tfbo").steps == 3
