"""Solutions of inner problems whose operations lack a derivative, or a map over stacks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import untuned

X = jnp.array([0.3, 0.7])


@jax.custom_vjp
def cube(z):
    return z**3


@jax.custom_vjp
def called_back(z):
    return z**3


def _in_python(z, up):
    return (up * jax.pure_callback(lambda z: 3 * np.asarray(z) ** 2, z, z),)


cube.defvjp(lambda z: (cube(z), z), lambda z, up: (3 * z**2 * up,))
called_back.defvjp(lambda z: (z**3, z), _in_python)


def solved(power):
    def g(x, y):
        return power((y - x).sum()) + 9 * ((y - x) ** 2).sum() + (y**2).sum()

    return lambda x: (untuned.argmin(g, x, jnp.zeros(2)) ** 2).sum()


@pytest.mark.parametrize("how", [lambda f: f, jax.jit], ids=["plain", "jit"])
def test_a_reverse_rule_has_gradients(how):
    found = how(jax.grad(solved(cube)))(X)
    np.testing.assert_allclose(found, jax.grad(solved(lambda z: z**3))(X), rtol=1e-5)


@pytest.mark.parametrize(
    "derivative",
    [
        lambda: jax.jvp(solved(cube), (X,), (X,)),
        lambda: jax.hessian(solved(cube))(X),
        lambda: solved(called_back)(X),
        lambda: jax.vmap(solved(called_back))(X[None]),
    ],
    ids=["forward", "second", "called back", "mapped"],
)
def test_what_a_rule_lacks_is_told_in_a_sentence(derivative):
    with pytest.raises(ValueError, match=r"^argmin needs a derivative of inner .*jax.custom_jvp\."):
        derivative()


def test_errors_of_the_function_itself_stay():
    def g(x, y):
        return jnp.sum(y) + jnp.ones(3) @ x

    with pytest.raises(TypeError, match="dot_general"):
        untuned.argmin(g, X, jnp.zeros(2))


@pytest.mark.parametrize("factors", [True, False], ids=["by factors", "at once"])
def test_stacks_of_stacks_that_torch_cannot_make_are_told_in_a_sentence(factors):
    def g(x, y):
        matrix = 3 * torch.eye(2) + torch.outer(y, y)
        if factors:
            solution = torch.linalg.lu_solve(*torch.linalg.lu_factor(matrix), x[:, None])[:, 0]
        else:
            solution = torch.linalg.solve(matrix, x)
        return solution @ y / 9 + 2 * (y**2).sum() - x @ y

    solve = lambda x: untuned.argmin(g, x, torch.zeros(2))
    many = torch.tensor([[0.1, 0.2], [0.3, -0.4]])
    each = torch.stack([solve(x) for x in many])
    torch.testing.assert_close(torch.vmap(solve)(many), each)
    if factors:  # a fault of torch, which another version may not have
        with pytest.raises(RuntimeError, match=r"^torch.func.vmap cannot .* within fewer vmaps\.$"):
            torch.vmap(torch.vmap(solve))(many[None])
    else:
        torch.testing.assert_close(torch.vmap(torch.vmap(solve))(many[None])[0], each)
