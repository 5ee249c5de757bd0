"""f and g that cannot be meant are refused in one sentence before anything is compiled."""

import numpy as np
import pytest
import torch

import untuned
from refusals import both_functions, both_libraries, f, g, minimize, refused, rows


@both_functions
@pytest.mark.parametrize("value", [None, 3.0, "f", [], np.zeros(2)], ids=repr)
def test_function_is_not_callable(role, value):
    expected = "expected a function of (x, y), or of (x, y, batch) where data are given."
    with refused(f"{role} is a {type(value).__name__}; ", expected):
        minimize("numpy", **{role: value})


ONE_NUMBER = ("expected one real number", "so end it with .sum() or .mean() of a float array.")


@both_libraries
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
        (lambda x, y: "loss", "str"),
        (lambda x, y: (g(x, y), y), "tuple"),
        # One number, but packed: the check must not look through the container.
        (lambda x, y: (g(x, y),), "tuple"),
        (lambda x, y: {"loss": g(x, y)}, "dict"),
    ],
    ids=["vector", "matrix", "one entry", "bool", "complex", "int", "str", "pair",
         "tuple", "dict"],
)  # fmt: skip
def test_function_does_not_give_one_real_number(library, role, function, came):
    with refused(f"{role}(x, y) gave ", came, *ONE_NUMBER):
        minimize(library, **{role: function})


@both_libraries
@both_functions
def test_function_without_return(library, role):
    with refused(f"{role}(x, y) gave None; expected one real number, so end it with a return."):
        minimize(library, **{role: lambda x, y: None})


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
    # JAX refuses these conversions by itself (below); torch lets them through.
    with refused(f"{role}(x, y) gave ", kind, *ONE_NUMBER):
        minimize("torch", **{role: function})


@both_libraries
@both_functions
def test_function_of_data_does_not_give_one_real_number(library, role):
    function = lambda x, y, batch: batch @ (y - x)
    with refused(f"{role}(x, y, batch) gave shape (4,) and type float32; ", *ONE_NUMBER):
        minimize(library, **{role: function, f"{role}_data": rows(library)}, batch_size=4)


@both_functions
def test_function_takes_no_batch_though_data_are_given(role):
    came = f"{role} does not take the arguments of {role}(x, y, batch) (too many positional "
    with refused(came, f"it is called like that because {role}_data were given."):
        minimize("numpy", **{role: lambda x, y: g(x, y), f"{role}_data": rows("numpy")})


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
def test_function_takes_other_arguments(role, function, problem):
    came = f"{role} does not take the arguments of {role}(x, y) ("
    with refused(came, problem, f"it is called like that because no {role}_data were given."):
        minimize("numpy", **{role: function})


IN_JAX = "so write it in jax.numpy, for example "


@both_functions
@pytest.mark.parametrize("library", ["numpy", "jax"])
@pytest.mark.parametrize(
    ("function", "parts"),
    [
        (lambda x, y: np.exp(y - x).sum(), ("makes NumPy arrays", IN_JAX, "jnp.exp")),
        (lambda x, y: np.asarray(y).sum(), ("makes NumPy arrays", IN_JAX, "jnp.exp")),
        (lambda x, y: g(x, y) if y[0] < 1 else 0.0, ("asks for the value", IN_JAX, "jnp.where")),
        (lambda x, y: float(g(x, y)), ("asks for the value", IN_JAX, "jnp.where")),
        (lambda x, y: g(x, y).item(), ("asks for the value", IN_JAX, "jnp.where")),
        (lambda x, y: sum(y[: int(x[0])]), ("asks for the value", IN_JAX, "jnp.where")),
        (lambda x, y: range(3)[y[0].astype(int)], ("asks for the value", IN_JAX, "jnp.where")),
        (lambda x, y: y[y > x].sum(), ("asks for the value", IN_JAX, "jnp.where")),
    ],
    ids=["np.exp", "asarray", "if", "float", "item", "int", "index", "mask"],
)
def test_function_needs_values_where_jax_traces(library, role, function, parts):
    """Who gives NumPy arrays writes f in NumPy, and need not know what a tracer is."""
    with refused(f"{role} {parts[0]}", *parts[1:]) as caught:
        minimize(library, **{role: function})
    assert caught.value.__cause__.__cause__ is not None  # whose traceback has the user's own line


def test_projection_in_numpy():
    came = "The projection given as constraint makes NumPy arrays of what it is given"
    with refused(came, IN_JAX):
        minimize("numpy", constraint=lambda x: np.clip(np.asarray(x), 0.0, 1.0))


def test_projection_out_of_torch():
    came = "The projection given as constraint gave something else than torch tensors; "
    with refused(came, "expected those of x."):
        minimize("torch", constraint=lambda x: np.clip(x.numpy(), 0.0, 1.0))


@pytest.mark.parametrize("call", [minimize, lambda library, outer: bare_argmin()])
def test_torch_without_gradients(call):
    """All of them were zero there, and the start was called converged."""
    with torch.inference_mode(), refused("within torch.inference_mode()", "torch.no_grad()"):
        call("torch", outer=f)


def bare_argmin():
    return untuned.argmin(g, torch.zeros(2), torch.zeros(2))


def test_tensors_made_without_gradients():
    """Embeddings made under `inference_mode` are rows like any other."""
    with torch.inference_mode():
        made = torch.arange(12.0).reshape(6, 2)
    kept = torch.arange(12.0).reshape(6, 2)
    runs = [minimize("torch", inner_data=data, outer_data=data) for data in (made, kept)]
    assert torch.equal(runs[0].x, runs[1].x)
    assert not torch.equal(runs[0].x, torch.zeros(2))
