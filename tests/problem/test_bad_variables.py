"""x0 and y0 that cannot be meant are refused in one sentence before anything is compiled."""

import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import untuned
from refusals import (
    COMPILED,
    array,
    assert_one_sentence,
    both_libraries,
    both_variables,
    every_library,
    inf,
    minimize,
    nan,
    refused,
)


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


@both_libraries
@both_variables
@pytest.mark.parametrize("value", [1, True, 1j], ids=repr)
def test_variable_is_not_a_float(library, name, value):
    came = f"{name} is the {type(value).__name__} {value!r}; "
    with refused(came, "expected a real number with a decimal point, such as 1.0."):
        minimize(library, **{name: value})


@both_libraries
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


@both_libraries
@both_variables
@pytest.mark.parametrize("bad", [nan, inf])
def test_plain_number_is_not_finite(library, name, bad):
    with refused(f"{name} has {bad} at index ()", "expected finite numbers"):
        minimize(library, **{name: bad})


@both_libraries
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

def compile(*args, effort="full"):
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


@pytest.mark.process
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


def test_variables_without_numbers():
    nothing = torch.zeros(2, device="meta")
    with refused("x0 is on torch's device meta, which holds no numbers; "):
        minimize("torch", x0=nothing, y0=nothing)


@both_variables
def test_variables_of_a_class_of_ones_own(name):
    with refused(f"{name} is a SimpleNamespace; expected an array, or a dict, tuple or list of"):
        minimize("numpy", **{name: SimpleNamespace(weights=np.zeros(2))})


@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_arrays_in_the_other_order_of_bytes_are_taken(kind):
    foreign = ">" if np.dtype(kind).newbyteorder("=").str[0] == "<" else "<"
    f = lambda x, y, rows: ((y - rows) ** 2).mean()
    g = lambda x, y, rows: ((y - x * rows) ** 2).mean()
    runs = [
        untuned.minimize(
            f, g, np.ones(2, order + kind), np.zeros(2, order + kind), max_steps=4,
            outer_data=np.ones((4, 2), order + kind), inner_data=np.ones((4, 2), order + "i4"),
        )
        for order in ("=", foreign)
    ]  # fmt: skip
    assert np.array_equal(runs[0].x, runs[1].x)
    assert runs[1].x.dtype == np.dtype(kind)
