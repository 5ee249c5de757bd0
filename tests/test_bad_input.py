"""Bad input is refused in one sentence before anything is compiled; bad numbers end a run."""

import contextlib
import json
import math
import os
import pickle
import re
import socket
import subprocess
import sys
from functools import cache
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

import untuned
from untuned import checkpoint as checkpoints
from untuned.ops import jax as jax_ops
from untuned.ops import torch as torch_ops
from untuned.solvers import DTFBO, STFBO

LIBRARIES = ("numpy", "jax", "torch")
COMPILED = ("jax", "torch")  # NumPy arrays run on JAX, so a whole run need not be made twice
nan, inf = math.nan, math.inf

every_library = pytest.mark.parametrize("library", LIBRARIES)
both_libraries = pytest.mark.parametrize("library", COMPILED)
both_variables = pytest.mark.parametrize("name", ["x0", "y0"])
both_sides = pytest.mark.parametrize("side", ["inner_data", "outer_data"])
both_functions = pytest.mark.parametrize("role", ["outer", "inner"])


def array(library, values, dtype="float32"):
    values = np.asarray(values, dtype)
    if library == "torch":
        return torch.from_numpy(values.copy())
    if library == "jax":
        with jax.enable_x64(True):  # or float64 would silently become float32
            return jnp.asarray(values)
    return values


def f(x, y, batch=None):
    return ((y - (1.0 if batch is None else batch.mean(0))) ** 2).sum()


def g(x, y, batch=None):
    return ((y - x) ** 2).sum() + (0.0 if batch is None else ((y - batch) ** 2).mean())


def minimize(library, **changes):
    """A run that is right but for `changes`."""
    start = {name: array(library, [0.0, 0.0]) for name in ("x0", "y0")}
    return untuned.minimize(**{"outer": f, "inner": g, "max_steps": 3} | start | changes)


def rows(library, count=6, dtype="float32"):
    values = np.random.default_rng(count).standard_normal((count, 2))
    return array(library, values, dtype)


def assert_one_sentence(text):
    assert "\n" not in text, text
    assert text.endswith("."), text
    assert len(text) < 400, text
    assert not re.search(r"[.!?] [A-Z]", text), f"more than one sentence: {text}"


@contextlib.contextmanager
def refused(*parts, may_compile=False):
    """Expect a ValueError of one sentence with these parts in this order, and no compilation."""

    def compile(*args):
        pytest.fail("a function was compiled before the input was refused")

    match = ".*".join(re.escape(part) for part in parts)
    with pytest.MonkeyPatch.context() as patch:
        if not may_compile:
            patch.setattr(jax_ops, "compile", compile)
            patch.setattr(torch_ops, "compile", compile)
        with pytest.raises(ValueError, match=match) as caught:
            yield caught
    assert_one_sentence(str(caught.value))


# The functions f and g


@every_library
@both_functions
@pytest.mark.parametrize("value", [None, 3.0, "f", [], np.zeros(2)], ids=repr)
def test_function_is_not_callable(library, role, value):
    expected = "expected a function of (x, y), or of (x, y, batch) where data are given."
    with refused(f"{role} is a {type(value).__name__}; ", expected):
        minimize(library, **{role: value})


ONE_NUMBER = ("expected one real number", "so end it with .sum() or .mean() of a float array.")


@every_library
@both_functions
@pytest.mark.parametrize(
    ("function", "came"),
    [
        (lambda x, y: y - x, "shape (2,) and type float32"),
        (lambda x, y: (y - x).reshape(1, 2), "shape (1, 2) and type float32"),
        (lambda x, y: (y - x)[:1], "shape (1,) and type float32"),
        (lambda x, y: (y - x > 0).all(), "shape () and type bool"),
        (lambda x, y: (y - x).sum() * 1j, "shape () and type complex64"),
        (lambda x, y: (y - x).argmax(), "shape () and type int"),
        (lambda x, y: None, "NoneType"),
        (lambda x, y: "loss", "str"),
        (lambda x, y: (g(x, y), y), "tuple"),
        # One number, but packed: the check must not look through the container.
        (lambda x, y: (g(x, y),), "tuple"),
        (lambda x, y: {"loss": g(x, y)}, "dict"),
    ],
    ids=["vector", "matrix", "one entry", "bool", "complex", "int", "None", "str", "pair",
         "tuple", "dict"],
)  # fmt: skip
def test_function_does_not_give_one_real_number(library, role, function, came):
    with refused(f"{role}(x, y) gave ", came, *ONE_NUMBER):
        minimize(library, **{role: function})


@both_functions
@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (lambda x, y: float(g(x, y)), "float"),
        (lambda x, y: g(x, y).item(), "float"),
        (lambda x, y: g(x, y).numpy(), "ndarray"),
        (lambda x, y: np.float64(g(x, y)), "float64"),
    ],
    ids=["float", "item", "numpy", "float64"],
)
def test_function_gives_a_number_that_has_no_gradient(role, function, kind):
    # JAX refuses these conversions itself, in the user's own line; torch lets them through.
    with refused(f"{role}(x, y) gave ", kind, *ONE_NUMBER):
        minimize("torch", **{role: function})


@every_library
@both_functions
def test_function_of_data_does_not_give_one_real_number(library, role):
    function = lambda x, y, batch: batch @ (y - x)
    with refused(f"{role}(x, y, batch) gave shape (4,) and type float32; ", *ONE_NUMBER):
        minimize(library, **{role: function, f"{role}_data": rows(library)}, batch_size=4)


@every_library
@both_functions
def test_function_takes_no_batch_though_data_are_given(library, role):
    came = f"{role} does not take the arguments of {role}(x, y, batch) (too many positional "
    with refused(came, f"it is called like that because {role}_data were given."):
        minimize(library, **{role: lambda x, y: g(x, y), f"{role}_data": rows(library)})


@every_library
@both_functions
@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda x, y, batch: g(x, y), "missing a required argument: 'batch'"),
        (lambda x: x.sum(), "too many positional arguments"),
        (lambda: 0.0, "too many positional arguments"),
        (lambda x, y, *, scale: g(x, y), "missing a required "),
    ],
    ids=["batch", "x only", "nothing", "keyword"],
)
def test_function_takes_other_arguments(library, role, function, problem):
    came = f"{role} does not take the arguments of {role}(x, y) ("
    with refused(came, problem, f"it is called like that because no {role}_data were given."):
        minimize(library, **{role: function})


# The variables x and y


@every_library
@both_variables
@pytest.mark.parametrize("dtype", ["complex64", "int32", "uint8", "bool", "float16"])
def test_variable_of_wrong_dtype(library, name, dtype):
    expected = "expected float32 or float64, so convert it, for example with .astype('float32')"
    with refused(f"{name} has dtype {dtype}; ", expected):
        minimize(library, **{name: array(library, [1, 0], dtype)})
    tree = {"a": array(library, [1.0, 0.0]), "b": [array(library, [1, 0], dtype)]}
    with refused(f"{name}['b'][0] has dtype {dtype}; ", expected):
        minimize(library, **{name: tree})


@both_variables
@pytest.mark.parametrize(
    "value",
    [jnp.zeros(2, jnp.bfloat16), torch.zeros(2, dtype=torch.bfloat16)],
    ids=COMPILED,
)
def test_variable_of_bfloat16(name, value):
    library = "torch" if isinstance(value, torch.Tensor) else "jax"
    with refused(f"{name} has dtype bfloat16; ", "expected float32 or float64, so convert it"):
        minimize(library, **{name: value})


@every_library
@both_variables
@pytest.mark.parametrize("value", [1, True, 1j], ids=repr)
def test_variable_is_not_a_float(library, name, value):
    came = f"{name} is the {type(value).__name__} {value!r}; "
    with refused(came, "expected a real number with a decimal point, such as 1.0."):
        minimize(library, **{name: value})


@every_library
@both_variables
@pytest.mark.parametrize("value", ["text", object(), {1.0, 2.0}], ids=["str", "object", "set"])
def test_variable_is_no_array(library, name, value):
    # In a torch run these must not pass for NumPy arrays, which could be converted.
    with refused(name, "expected ", "convert") as caught:
        minimize(library, **{name: value})
    assert re.search("str" if value == "text" else "object|set", str(caught.value))


@pytest.mark.parametrize("library", ["numpy", "jax"])
@both_variables
def test_variable_is_an_array_of_text(library, name):
    with refused(f"{name} has dtype str", "expected float32 or float64, so convert it"):
        minimize(library, **{name: np.array(["a", "b"])})


@every_library
@both_variables
@pytest.mark.parametrize("bad", [nan, inf, -inf])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_variable_is_not_finite(library, name, bad, dtype):
    start = {key: array(library, [0.0, 0.0], dtype) for key in ("x0", "y0")}
    todo = "expected finite numbers, so remove or fill them in."
    with refused(f"{name} has {bad} at index (1,) (1 such entr", todo):
        minimize(library, **start | {name: array(library, [0.0, bad], dtype)})
    tree = {"a": start[name], "b": (array(library, [[0.0, 1.0], [bad, bad]], dtype),)}
    with refused(f"{name}['b'][0] has {bad} at index (1, 0) (2 such entries); ", todo):
        minimize(library, **start | {name: tree})


@every_library
@both_variables
@pytest.mark.parametrize("bad", [nan, inf])
def test_plain_number_is_not_finite(library, name, bad):
    with refused(f"{name} has {bad} at index ()", "expected finite numbers"):
        minimize(library, **{name: bad})


@every_library
@both_variables
@pytest.mark.parametrize("empty", [{}, [], (), None, {"a": [], "b": None}], ids=repr)
def test_variable_is_an_empty_tree(library, name, empty):
    with refused(f"{name} is empty; ", "expected at least one array of floats."):
        minimize(library, **{name: empty})


@every_library
@both_variables
@pytest.mark.parametrize("shape", [(0,), (3, 0)], ids=repr)
def test_variable_has_no_entries(library, name, shape):
    for tree in (array(library, np.zeros(shape)), {"a": array(library, np.zeros(shape))}):
        with refused(f"{name} holds no numbers; ", "expected at least one array with entries."):
            minimize(library, **{name: tree})


@both_variables
@pytest.mark.parametrize("inside", [False, True], ids=["bare", "in a dict"])
def test_variable_is_a_module(name, inside):
    module = torch.nn.Linear(2, 1)
    came = f"{name} is a module (Linear); "
    todo = "expected its parameters, which untuned.from_module(module) gives"
    with refused(came, todo):
        minimize("torch", **{name: {"net": module} if inside else module})


@pytest.mark.parametrize(
    ("in_x", "in_y"),
    [("numpy", "torch"), ("jax", "torch"), ("torch", "numpy"), ("torch", "jax")],
)
def test_x_and_y_of_different_libraries(in_x, in_y):
    spoken = {"numpy": "NumPy arrays", "jax": "JAX arrays", "torch": "torch tensors"}
    start = {"x0": array(in_x, [0.0, 0.0]), "y0": array(in_y, [0.0, 0.0])}
    todo = "expected one array library for both, so convert one of them."
    with refused(todo) as caught:
        minimize("numpy", **start)
    for name, library in (("x0", in_x), ("y0", in_y)):
        assert f"{name} holds {spoken[library]}" in str(caught.value)


def test_one_variable_of_two_libraries():
    mixed = {"a": torch.zeros(2), "b": jnp.zeros(2)}
    with refused("y0 holds JAX arrays and ", "holds torch tensors; ", "so convert one of them."):
        minimize("torch", y0=mixed)


@every_library
@pytest.mark.parametrize("in_x", ["float32", "float64"])
def test_x_and_y_of_different_dtypes(library, in_x):
    in_y = {"float32": "float64", "float64": "float32"}[in_x]
    todo = "expected one dtype for all of x0 and y0, so convert one of them."
    x, y = array(library, [0.0, 0.0], in_x), array(library, [0.0, 0.0], in_y)
    with refused(f"x0 is {in_x} and y0 is {in_y}; ", todo):
        minimize(library, x0=x, y0=y)
    with refused(f"x0['a'] is {in_x} and x0['b'] is {in_y}; ", todo):
        minimize(library, x0={"a": x, "b": y}, y0=y)


def test_numpy_and_jax_go_together_only_in_one_dtype():
    # The common slip: NumPy makes float64 where JAX makes float32.
    with refused("x0 is float64 and y0 is float32; ", "so convert one of them."):
        minimize("jax", x0=np.zeros(2))


ONE_DEVICE = "expected one device for all variables, so move one of them."


@pytest.mark.parametrize(
    ("x_device", "y_device"), [("cpu", "meta"), ("meta", "cpu")], ids=["y moved", "x moved"]
)
def test_torch_variables_on_different_devices(x_device, y_device):
    x, y = torch.zeros(2, device=x_device), torch.zeros(2, device=y_device)
    with refused(f"x0 is on {x_device} and y0 has an array on {y_device}; ", ONE_DEVICE):
        minimize("torch", x0=x, y0=y)


def test_torch_variable_on_two_devices():
    parts = {"a": torch.zeros(2), "b": torch.zeros(2, device="meta")}
    with refused("x0 is on cpu and x0 has an array on meta; ", ONE_DEVICE):
        minimize("torch", x0=parts)


ON_TWO_DEVICES = """
import json
import jax, jax.numpy as jnp
import untuned, untuned.ops.jax

def compile(*args):
    raise SystemExit("a function was compiled before the input was refused")

untuned.ops.jax.compile = compile
here, there = (jax.device_put(jnp.zeros(2), device) for device in jax.devices())
rows = jax.device_put(jnp.ones((6, 2)), jax.devices()[1])
f = lambda x, y, batch=None: ((y - 1.0) ** 2).sum()
g = lambda x, y, batch=None: ((y - x) ** 2).sum()
cases = {
    "x and y": dict(x0=here, y0=there),
    "inside y": dict(x0=here, y0={"a": here, "b": there}),
    "inner_data": dict(x0=here, y0=here, inner_data=rows),
    "outer_data": dict(x0=here, y0=here, outer_data=rows),
}
messages = {}
for case, options in cases.items():
    try:
        untuned.minimize(f, g, max_steps=3, **options)
    except ValueError as error:
        messages[case] = str(error)
print(json.dumps([[str(device) for device in jax.devices()], messages]))
"""


def test_jax_arrays_on_different_devices():
    # How many devices JAX sees is settled at its start, hence a process of its own.
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", ON_TWO_DEVICES],
        env=os.environ | flags,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert child.returncode == 0, child.stderr
    (here, there), messages = json.loads(child.stdout)
    data = f"is on {there} and the variables are on {here}; expected one device for both, so move"
    assert messages == {
        "x and y": f"x0 is on {here} and y0 has an array on {there}; {ONE_DEVICE}",
        "inside y": f"x0 is on {here} and y0 has an array on {there}; {ONE_DEVICE}",
        "inner_data": f"inner_data {data} one of them.",
        "outer_data": f"outer_data {data} one of them.",
    }
    for text in messages.values():
        assert_one_sentence(text)


# Data and batches


@every_library
@both_sides
def test_data_of_different_lengths(library, side):
    todo = f"expected the same leading axis for all arrays of {side}."
    data = {"X": rows(library, 6), "t": rows(library, 5)}
    with refused(f"{side}['X'] has 6 rows and {side}['t'] has 5; ", todo):
        minimize(library, **{side: data})
    with refused(f"{side}[0] has 6 rows and {side}[1] has 5; ", todo):
        minimize(library, **{side: (rows(library, 6), rows(library, 5))})


@every_library
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


@every_library
@both_sides
def test_data_are_too_large_for_the_dtype_of_x0(library, side):
    # 1e300 is finite, but not in float32; NumPy must not warn about it on the way.
    values = np.ones((6, 2))
    values[4, 1] = 1e300
    with refused(side, "at index (4, 1)", "expected finite numbers"):
        minimize(library, **{side: values})


@every_library
@both_sides
@pytest.mark.parametrize("shape", [(), (0,), (0, 2)], ids=repr)
def test_data_have_no_rows(library, side, shape):
    todo = "expected at least one row along its leading axis."
    with refused(f"{side} has shape {shape}; ", todo):
        minimize(library, **{side: array(library, np.zeros(shape))})


@every_library
@both_sides
@pytest.mark.parametrize("empty", [{}, [], ()], ids=repr)
def test_data_are_an_empty_tree(library, side, empty):
    with refused(f"{side} holds no array; ", "leave it out, or give arrays of rows."):
        minimize(library, **{side: empty})


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


@every_library
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


@every_library
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


@every_library
@pytest.mark.parametrize(
    "size",
    [0, -1, 2.0, 2.5, nan, True, "all", np.int64(0), (0, 2), (2, 0), (2.0, 2), (2, True),
     (None, -1), (1, 2, 3), (2,), [2, "2"], {}],
    ids=repr,
)  # fmt: skip
def test_batch_size_is_not_a_count(library, size):
    data = {"inner_data": rows(library, 6), "outer_data": rows(library, 4)}
    with refused(f"batch_size={size!r} {NOT_A_SIZE}"):
        minimize(library, **data, batch_size=size)


@pytest.mark.parametrize("size", [(2, 0), (2, 1.5)], ids=repr)
def test_batch_size_is_checked_also_for_a_side_without_data(size):
    with refused(f"batch_size={size!r} {NOT_A_SIZE}"):
        minimize("numpy", inner_data=rows("numpy"), batch_size=size)


@every_library
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
def test_batch_size_above_the_rows(library, size, came, side, count):
    data = {"inner_data": rows(library, 6), "outer_data": rows(library, 4)}
    todo = f"give at most {count}, or None for all rows."
    with refused(f"batch_size={came} is more than the {count} rows of {side}; ", todo):
        minimize(library, **data, batch_size=size)


@every_library
@pytest.mark.parametrize("size", [4, (4, 4), (None, 4)], ids=repr)
def test_batch_size_without_data(library, size):
    todo = "give inner_data or outer_data, or leave batch_size out."
    with refused(f"batch_size={size!r} was given without data; ", todo):
        minimize(library, batch_size=size)


# The method and the settings


@every_library
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
def test_unknown_method(library, name, nearest):
    came = f"There is no method {name!r}; the nearest name is {nearest!r}, and all names are "
    with refused(came, "d-tfbo", "s-tfbo"):
        minimize(library, method=name)
    with refused(came):
        untuned.solvers.get(name)


def test_unknown_method_that_is_near_to_none():
    with refused("There is no method ''; the nearest name is ", "all names are aid, "):
        minimize("numpy", method="")


@every_library
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
def test_method_is_not_a_solver(library, method):
    todo = "expected a name such as 'd-tfbo', or a solver such as untuned.solvers.DTFBO()."
    with refused("method=", " is not a method; ", todo):
        minimize(library, method=method)


@every_library
@pytest.mark.parametrize(
    ("name", "values", "least"),
    [
        ("max_steps", [0, -1, 1.5, 10.0, nan, inf, True, None, "10", [10]], 1),
        ("seed", [-1, 1.5, nan, True, None, "0", np.float32(1)], 0),
        ("eval_every", [0, -1, 1.5, nan, True, "1"], 1),
    ],
    ids=["max_steps", "seed", "eval_every"],
)
def test_setting_is_not_a_whole_number(library, name, values, least):
    for value in values:
        with refused(f"{name}={value!r} is not usable; expected a whole number from {least} up, "):
            minimize(library, **{name: value})


@every_library
@pytest.mark.parametrize("name", ["tol", "max_seconds"])
@pytest.mark.parametrize("value", [0, 0.0, -1, -1e-3, nan, -inf, True, "1", [1.0]], ids=repr)
def test_setting_is_not_a_positive_number(library, name, value):
    with refused(f"{name}={value!r} is not usable; expected a number above zero, "):
        minimize(library, **{name: value})


@every_library
@pytest.mark.parametrize("callback", [1, True, "print", [print]], ids=repr)
def test_callback_is_not_callable(library, callback):
    came = f"callback is a {type(callback).__name__}; "
    with refused(came, "expected a function of one snapshot."):
        minimize(library, callback=callback)


CONSTRAINTS = (
    'expected "simplex", "nonnegative", a pair (low, high), or a function that projects x.'
)


@every_library
@pytest.mark.parametrize(
    "constraint",
    ["simplx", "", 1.0, True, (None, None), (0.0,), (0.0, 1.0, 2.0), ("0", "1"), [0.0, "1"],
     {"low": 0.0}],
    ids=repr,
)  # fmt: skip
def test_constraint_is_not_known(library, constraint):
    with refused(f"constraint={constraint!r} is not known; ", CONSTRAINTS):
        minimize(library, constraint=constraint)


@every_library
def test_constraint_has_its_ends_swapped(library):
    came = "constraint=(1.0, 0.0) has its low end above its high end; "
    with refused(came, "give (low, high) with low <= high."):
        minimize(library, constraint=(1.0, 0.0))


@every_library
@pytest.mark.parametrize(
    "constraint", [(nan, None), (None, nan), (0.0, nan), (inf, None), (None, -inf)], ids=repr
)
def test_constraint_holds_no_finite_point(library, constraint):
    with refused(f"constraint={constraint!r} "):
        minimize(library, constraint=constraint)


@every_library
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


@every_library
def test_projection_gives_nan(library):
    with refused("constraint", "nan", "expected "):
        minimize(library, constraint=lambda x: x * nan)


@every_library
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
def test_long_values_are_cut_short(library, options, start):
    with refused(start):  # which also says that the sentence is short and on one line
        minimize(library, **options)


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
    with refused(came, f"expected a finite number above zero, for example {field}=1.0."):
        solver(**{field: value})


@pytest.mark.parametrize("field", ["inner_steps", "linear_steps", "cap", "horizon"])
@pytest.mark.parametrize("value", [0, -1, 1.5, 10.0, nan, True, "10"], ids=repr)
def test_loop_count_is_not_a_count(field, value):
    came = f"DTFBO was given {field}={value!r}; "
    with refused(came, f"expected a whole number from 1 up, for example {field}=10."):
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
    with refused("outer(x, y) gave shape (2,)", *ONE_NUMBER):
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


# Checkpoints


@pytest.mark.parametrize("library", LIBRARIES)
def test_checkpoint_is_a_folder(library, tmp_path):
    came = f"checkpoint={str(tmp_path)!r} is a folder; "
    with refused(came, "expected the path of a file in an existing folder."):
        minimize(library, checkpoint=tmp_path)
    with refused(came):
        minimize(library, checkpoint=str(tmp_path))


@pytest.mark.parametrize("library", LIBRARIES)
def test_checkpoint_is_in_no_folder(library, tmp_path):
    path = tmp_path / "missing" / "run"
    came = f"checkpoint={str(path)!r} lies in {path.parent}, which is not an existing folder; "
    with refused(came, "expected the path of a file in an existing folder."):
        minimize(library, checkpoint=path)
    assert not path.parent.exists()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("checkpoint", [3, True, b"run", ["run"], object()])
def test_checkpoint_is_not_a_path(library, checkpoint):
    with refused("checkpoint", "expected the path of a file in an existing folder."):
        minimize(library, checkpoint=checkpoint)


def saved_run(library, path, **changes):
    """A run that keeps a checkpoint, the same one but for `changes`."""
    options = {
        "inner_data": rows(library, 6),
        "outer_data": rows(library, 4),
        "batch_size": (2, 2),
        "seed": 3,
        "method": STFBO(),
    }
    return minimize(library, checkpoint=path, **options | changes)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The bytes of a whole checkpoint, by library."""

    @cache
    def make(library):
        path = tmp_path_factory.mktemp(library) / "run"
        saved_run(library, path)
        return path.read_bytes()

    return make


@contextlib.contextmanager
def left_untouched(path):
    before, around = path.read_bytes(), sorted(path.parent.iterdir())
    yield
    assert path.read_bytes() == before
    assert sorted(path.parent.iterdir()) == around  # no partial file either


REMEDY = "give another path, or delete the file to start anew."


@both_libraries
def test_checkpoint_of_the_same_run_is_taken(library, saved, tmp_path):
    # The cases below are only worth something if nothing but their change is refused.
    path = tmp_path / "run"
    path.write_bytes(saved(library))
    assert saved_run(library, path, max_steps=5).steps == 5


def header_end(content):
    return 8 + int.from_bytes(content[:8], "little")


LENGTHS = {
    "0 bytes": lambda content: 0,
    "1 byte": lambda content: 1,
    "7 bytes": lambda content: 7,
    "8 bytes": lambda content: 8,
    "9 bytes": lambda content: 9,
    "half of the header": lambda content: header_end(content) // 2,
    "all but the last byte of the header": lambda content: header_end(content) - 1,
    "header only": lambda content: header_end(content),
    "header and 1 byte": lambda content: header_end(content) + 1,
    "half of the tensors": lambda content: (header_end(content) + len(content)) // 2,
    "all but the last byte": lambda content: len(content) - 1,
}


@both_libraries
@pytest.mark.parametrize("length", LENGTHS)
def test_truncated_checkpoint(library, length, saved, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(saved(library)[: LENGTHS[length](saved(library))])
    came = f"The checkpoint {path} is damaged or not a checkpoint of untuned ("
    with left_untouched(path), refused(came, REMEDY):
        saved_run(library, path)


@both_libraries
def test_checkpoint_with_a_byte_too_many(library, saved, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(saved(library) + b"\0")
    with left_untouched(path), refused(f"The checkpoint {path} is damaged", REMEDY):
        saved_run(library, path)


@both_libraries
@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_checkpoint_with_a_flipped_byte(library, place, saved, tmp_path):
    content = bytearray(saved(library))
    first, last = header_end(content), len(content) - 1
    content[{"first": first, "middle": (first + last) // 2, "last": last}[place]] ^= 0x10
    path = tmp_path / "run"
    path.write_bytes(content)
    came = f"The checkpoint {path} is damaged: its contents do not match its digest; "
    with left_untouched(path), refused(came, REMEDY):
        saved_run(library, path)


def test_no_byte_of_a_checkpoint_flips_unnoticed(saved, tmp_path):
    # Header and tensors alike, one byte at a time; read directly, a run for each would take long.
    content, path = saved("torch"), tmp_path / "run"
    for place in range(0, len(content), 5):
        for mask in (0x01, 0x80):
            flipped = bytearray(content)
            flipped[place] ^= mask
            path.write_bytes(flipped)
            with refused(str(path), REMEDY):
                checkpoints.load(path)


def weights(dtype):
    return {"weight": torch.ones(3, 2, dtype=dtype)}


FOREIGN = {
    "random bytes": lambda: np.random.default_rng(0).bytes(1000),
    "zeros": lambda: bytes(1000),
    "text": lambda: b"step,loss\n1,0.5\n",
    "pickle": lambda: pickle.dumps({"x": [0.0, 0.0]}),
}


@both_libraries
@pytest.mark.parametrize("kind", FOREIGN)
def test_checkpoint_is_another_kind_of_file(library, kind, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(FOREIGN[kind]())
    came = f"The checkpoint {path} is damaged or not a checkpoint of untuned ("
    with left_untouched(path), refused(came, REMEDY):
        saved_run(library, path)


SAFETENSORS = {
    "no format": (lambda: safetensors.numpy.save({"w": np.ones(3)}), "None"),
    "of torch": (lambda: safetensors.torch.save(weights(torch.float32), {"format": "pt"}), "'pt'"),
    # Types NumPy does not have: the format must be looked at before the arrays are.
    "bfloat16": (lambda: safetensors.torch.save(weights(torch.bfloat16), {"format": "pt"}), "'pt'"),
    "float8": (lambda: safetensors.torch.save(weights(torch.float8_e4m3fn)), "None"),
    "a later format": (
        lambda: safetensors.numpy.save({"w": np.ones(3)}, {"format": "untuned checkpoint 2"}),
        "'untuned checkpoint 2'",
    ),
}


@both_libraries
@pytest.mark.parametrize("kind", SAFETENSORS)
def test_checkpoint_is_a_safetensors_file_of_another_program(library, kind, tmp_path):
    path = tmp_path / "run"
    make, came = SAFETENSORS[kind]
    path.write_bytes(make())
    came = f"The file {path} says its format is {came}; expected 'untuned checkpoint 1', so "
    with left_untouched(path), refused(came, REMEDY):
        saved_run(library, path)


@both_libraries
def test_checkpoint_cannot_be_opened(library, tmp_path, monkeypatch):
    # A socket has a name in the folder and cannot be opened as a file, not even by root.
    monkeypatch.chdir(tmp_path)  # its name must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("run")
        with refused("The checkpoint run cannot be read (", REMEDY) as caught:
            saved_run(library, "run")
        # safetensors says of every file it cannot open that there is none.
        assert "No such file" not in str(caught.value)
        assert (tmp_path / "run").is_socket()
        assert [path.name for path in tmp_path.iterdir()] == ["run"]


@both_libraries
def test_checkpoint_may_not_be_read(library, saved, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(saved(library))
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("root may read everything")
    with refused(f"The checkpoint {path} cannot be read (Permission denied); ", REMEDY):
        saved_run(library, path)
    path.chmod(0o600)
    assert path.read_bytes() == saved(library)


OTHER_RUNS = {
    "method": (lambda a: {"method": DTFBO()}, "method is 'STFBO' and this run's is 'DTFBO'"),
    "alpha0": (
        lambda a: {"method": STFBO(alpha0=2.0)},
        "alpha0 is 1.0 and this run's is 2.0",
    ),
    # A hyperparameter is what the user wrote, so it must be the same to the last digit.
    "alpha0, hardly": (lambda a: {"method": STFBO(alpha0=1.00001)}, "alpha0 is 1.0 and this"),
    "seed": (lambda a: {"seed": 4}, "seed is 3 and this run's is 4"),
    "batch_size": (
        lambda a: {"batch_size": (3, 2)},
        "batch_size is [2, 2] and this run's is [3, 2]",
    ),
    "no batches": (
        lambda a: {"batch_size": None},
        "batch_size is [2, 2] and this run's is [None, None]",
    ),
    "constraint": (
        lambda a: {"constraint": (-1.0, 1.0)},
        "constraint is 'None' and this run's is '(-1.0, 1.0)'",
    ),
    "x0": (lambda a: {"x0": a([0.0, 1e-7])}, "x0 is "),
    "y0": (lambda a: {"y0": a([1.0, 0.0])}, "y0 is "),
    "shape of x0": (lambda a: {"x0": a([[0.0, 0.0]])}, "x0 is "),
    "dtype": (
        lambda a: {"x0": a([0.0, 0.0], "float64"), "y0": a([0.0, 0.0], "float64")},
        "x0 is ",
    ),
    "tree": (
        lambda a: {
            "x0": {f"layer {k}": a([0.0, 0.0]) for k in range(40)},
            "outer": lambda x, y, batch: f(x["layer 0"], y, batch),
            "inner": lambda x, y, batch: g(x["layer 0"], y, batch),
        },
        "tree of x0 and y0 is ",
    ),
    "inner_data": (lambda a: {"inner_data": a(np.ones((6, 2)))}, "data is "),
    "outer_data": (lambda a: {"outer_data": a(np.ones((4, 2)))}, "data is "),
}


@both_libraries
@pytest.mark.parametrize("change", OTHER_RUNS)
def test_checkpoint_of_another_run(library, change, saved, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(saved(library))
    make, difference = OTHER_RUNS[change]
    changes = make(lambda *args: array(library, *args))
    came = f"The checkpoint {path} belongs to another run: its {difference}"
    with left_untouched(path), refused(came, REMEDY):
        saved_run(library, path, **changes)


@both_libraries
@pytest.mark.parametrize(
    "change",
    [
        {"inner": lambda x, y, batch: 2 * g(x, y, batch)},
        {"outer": lambda x, y, batch: f(x, y, batch) + 1.0},
        # The same value and gradient at the start, and another Hessian.
        {"inner": lambda x, y, batch: g(x, y, batch) + 0.5 * (y**2).sum()},
    ],
    ids=["2 g", "f + 1", "g + y^2/2"],
)
def test_checkpoint_of_another_function(library, change, saved, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(saved(library))
    came = (
        f"The checkpoint {path} belongs to another run: its f or g gave other values or gradients "
    )
    # What a function computes can only be told by computing it.
    with left_untouched(path), refused(came, REMEDY, may_compile=True):
        saved_run(library, path, **change)


@pytest.mark.parametrize(("library", "other"), [("jax", "torch"), ("torch", "jax")])
def test_checkpoint_of_another_library(library, other, saved, tmp_path):
    path = tmp_path / "run"
    path.write_bytes(saved(other))
    difference = f"array library is {other!r} and this run's is {library!r}; "
    came = f"The checkpoint {path} belongs to another run: its {difference}"
    with left_untouched(path), refused(came, REMEDY):
        saved_run(library, path)


# Divergence in a run

MAX_STEPS = 30
BAD = 10  # a step at which x is still on its way, and which ends no seven steps
# The horizon is given so that the path does not depend on max_steps, and the cap keeps the runs
# short in which the Hessian of g vanishes.
METHODS = {
    "s-tfbo": STFBO(alpha0=4.0),
    "d-tfbo": DTFBO(alpha0=10.0, horizon=MAX_STEPS, cap=100),
    "d-tfbo, fixed loops": DTFBO(alpha0=10.0, inner_steps=5, linear_steps=3),
}
WHERE = {"jax": jnp.where, "torch": torch.where}
STOP = {"jax": jax.lax.stop_gradient, "torch": torch.Tensor.detach}

both_methods = pytest.mark.parametrize("method", ["s-tfbo", "d-tfbo"])


@cache
def path_of(library, method):
    """x[0] and y[0] after 0, 1, ... steps of the sound problem."""
    x, y = [0.0], [0.0]

    def keep(snapshot):
        x.append(float(snapshot.x[0]))
        y.append(float(snapshot.y[0]))

    run(library, method, {}, eval_every=1, callback=keep)
    return {"x": x, "y": y}


def run(library, method, functions, **options):
    options = {"method": METHODS[method], "max_steps": MAX_STEPS} | options
    return minimize(library, **functions, **options)


def midway(values, step):
    """A level the values are below until `step`, and above from it on."""
    before, after = max(values[:step]), min(values[step : step + 5])
    assert before + 1e-6 < after
    return (before + after) / 2


OF_F, OF_G = "the outer function f became ", "the inner function g became "
OF_GRADIENT = "the gradient of g in y became "

# What goes bad, and how the message may name it. `b(u, w)` is u where it is bad and w where not;
# `root` is zero with slope inf where it is bad, and one with slope zero where not.
IN_F = {
    "f nan, no gradient": (lambda f, b: b(nan, f), [OF_F + "nan"]),
    "f nan": (lambda f, b: f * b(nan, 1.0), [OF_F + "nan"]),
    "f inf": (lambda f, b: f + b(inf, 0.0), [OF_F + "inf"]),
    "f -inf": (lambda f, b: f + b(-inf, 0.0), [OF_F + "-inf"]),
}
IN_G = {
    "g nan, no gradient": (lambda g, b, root: b(nan, g), [OF_G + "nan"]),
    "g inf, right gradient": (lambda g, b, root: g + b(inf, 0.0), [OF_G + "inf"]),
    "g nan": (lambda g, b, root: g * b(nan, 1.0), [OF_G + "nan", OF_GRADIENT + "nan"]),
    "gradient of g inf": (lambda g, b, root: g + root, [OF_GRADIENT]),
    "gradient of g nan": (lambda g, b, root: g + 0.0 * root, [OF_GRADIENT + "nan"]),
}
KINDS = IN_F | IN_G


def damage(library, kind, level, variable="x", until=inf):
    """f and g, of which one goes bad as `kind` says once a variable is above `level`."""
    where, stop = WHERE[library], STOP[library]
    change, _ = KINDS[kind]

    def bad(x, y):
        at = {"x": x, "y": y}[variable][0]
        return lambda yes, no: where((at > level) & (at < until), yes, no)

    def outer(x, y):
        return change(f(x, y), bad(x, y)) if kind in IN_F else f(x, y)

    def inner(x, y):
        root = (bad(x, y)(y - stop(y), 1.0) ** 0.5).sum()
        return change(g(x, y), bad(x, y), root) if kind in IN_G else g(x, y)

    return {"outer": outer, "inner": inner}


def numbers(result):
    return [np.asarray(part) for part in (result.x, result.y, result.v)]


def assert_diverged(result, kind):
    """The run ended at once, says where and why, and gives back finite numbers."""
    assert result.status == "diverged", result.message
    assert not result.success
    assert result.steps < MAX_STEPS
    _, names = KINDS[kind]
    starts = tuple(f"Diverged at step {result.steps}: {name}" for name in names)
    assert result.message.startswith(starts)
    assert all(np.isfinite(part).all() for part in numbers(result))
    assert result.state is not None


def assert_sound_at(result, functions, library):
    """The point kept is one where nothing is bad."""
    x, y = (array(library, np.asarray(part)) for part in (result.x, result.y))
    for role, function in functions.items():
        assert math.isfinite(float(function(x, y))), f"{role} is not finite at the point kept"


@both_libraries
@both_methods
@pytest.mark.parametrize(
    "kind",
    ["f nan, no gradient", "f inf", "g nan, no gradient", "g nan", "gradient of g inf",
     "gradient of g nan"],
)  # fmt: skip
def test_divergence_ends_a_run_at_once(library, method, kind):
    functions = damage(library, kind, midway(path_of(library, method)["x"], BAD - 1))
    steps = []
    for eval_every in (1, 7):
        result = run(library, method, functions, eval_every=eval_every)
        assert_diverged(result, kind)
        assert_sound_at(result, functions, library)
        assert result.history["step"][-1] == result.steps
        steps.append(result.steps)
    # Step BAD is the first to compute at the bad x, which step BAD - 1 made. The bare value of g
    # belongs to a point rather than to a step, so it may be noticed as soon as the point is made.
    earliest = BAD - 1 if kind.startswith("g ") else BAD
    assert steps[0] == steps[1], "where a run ends depends on how often it is recorded"
    assert earliest <= steps[0] <= BAD


@both_libraries
@pytest.mark.parametrize("kind", ["f -inf", "gradient of g inf", "gradient of g nan"])
def test_divergence_in_loops_of_fixed_length(library, kind):
    # No test ends these loops, so a bad gradient of g spreads to y and f; g is to be named.
    method = "d-tfbo, fixed loops"
    functions = damage(library, kind, midway(path_of(library, method)["x"], BAD - 1))
    result = run(library, method, functions)
    assert_diverged(result, kind)
    assert_sound_at(result, functions, library)
    assert result.steps == BAD


@both_libraries
@both_methods
@pytest.mark.parametrize("kind", ["f nan, no gradient", "g nan"])
def test_divergence_where_y_goes_bad(library, method, kind):
    # The y a step of S-TFBO leaves behind is not the one it measured: it may be the first bad one.
    # D-TFBO may come to a bad y inside a loop, long before it ends a step with one.
    made_by = 8
    functions = damage(library, kind, midway(path_of(library, method)["y"], made_by), "y")
    result = run(library, method, functions, eval_every=7)
    assert_diverged(result, kind)
    assert_sound_at(result, functions, library)
    assert result.steps <= made_by + 1


@both_libraries
@both_methods
def test_divergence_after_the_last_regular_record(library, method):
    # The run is over before the next record is due; g must be looked at all the same.
    kind = "g nan, no gradient"
    functions = damage(library, kind, midway(path_of(library, method)["x"], BAD - 1))
    result = run(library, method, functions, max_steps=BAD + 1, eval_every=7)
    assert_diverged(result, kind)
    assert BAD - 1 <= result.steps <= BAD


@both_libraries
@both_methods
def test_divergence_at_one_point_of_the_way(library, method):
    # g is inf at one point and finite again after it. Its value is asked for at records, since no
    # method needs it (docs/architecture.md), so a record at every step sees it.
    kind, way = "g inf, right gradient", path_of(library, method)["x"]
    functions = damage(library, kind, midway(way, BAD - 1), until=midway(way, BAD))
    result = run(library, method, functions, eval_every=1)
    assert_diverged(result, kind)
    assert BAD - 1 <= result.steps <= BAD


@both_libraries
@both_methods
@pytest.mark.parametrize(
    "kind", ["f nan, no gradient", "f nan", "f inf", "g nan, no gradient", "gradient of g nan"]
)
def test_divergence_at_the_start_gives_back_the_start(library, method, kind):
    functions = damage(library, kind, level=-inf)
    x0, y0 = array(library, [0.25, 0.5]), array(library, [0.75, 1.0])
    result = run(library, method, functions, x0=x0, y0=y0)
    assert_diverged(result, kind)
    assert result.steps <= 1
    np.testing.assert_array_equal(np.asarray(result.x), [0.25, 0.5])
    np.testing.assert_array_equal(np.asarray(result.y), [0.75, 1.0])


@both_libraries
@both_methods
@pytest.mark.parametrize("kind", ["f nan, no gradient", "g nan, no gradient"])
def test_divergence_is_not_taken_for_convergence(library, method, kind):
    # The bad one is flat and the other at its minimum, so every norm is zero.
    functions = damage(library, kind, level=-inf)
    ones = array(library, [1.0, 1.0])
    assert_diverged(run(library, method, functions, x0=ones, y0=ones, tol=1e-2), kind)


@both_libraries
@both_methods
def test_divergence_in_minibatches(library, method):
    where, level = WHERE[library], midway(path_of(library, method)["x"], 3)
    functions = {
        "outer": lambda x, y, batch: f(x, y, batch) * where(x[0] > level, nan, 1.0),
        "inner": g,
    }
    data = array(library, np.ones((6, 2)))  # every batch is the same, so the path is known
    result = run(library, method, functions, outer_data=data, batch_size=2, eval_every=7)
    assert_diverged(result, "f nan")
    assert result.steps == 4


@both_libraries
@both_methods
def test_divergence_is_kept_by_a_checkpoint(library, method, tmp_path):
    functions = damage(library, "f nan", midway(path_of(library, method)["x"], BAD - 1))
    first, again = (run(library, method, functions, checkpoint=tmp_path / "run") for _ in "12")
    for result in (first, again):
        assert_diverged(result, "f nan")
    assert first.message == again.message
    assert first.steps == again.steps == BAD
    for one, other in zip(numbers(first), numbers(again), strict=True):
        np.testing.assert_array_equal(one, other)
