"""What is kept for the derivative does not grow with the steps that found the solution."""

import jax
import jax.numpy as jnp
import pytest
import torch

import untuned


def slow(x, y):
    """Newton's steps shrink what is left by a third each."""
    return (y**6).sum() + 1e-9 * ((y - x) ** 2).sum()


def numbers_held(node):
    """Of all tensors that a graph keeps for its derivative."""
    own = sum(tensor.numel() for tensor in getattr(node, "saved_tensors", ()))
    return own + sum(numbers_held(before) for before, _ in node.next_functions if before)


@pytest.mark.parametrize("size", [8, 400])
def test_numbers_that_torch_keeps(size):
    kept = {}
    for steps in (2, 40):
        x = torch.ones((), dtype=torch.float64, requires_grad=True)
        start = torch.full((size,), 1e3, dtype=torch.float64)
        y = untuned.argmin(slow, x, start, max_steps=steps, on_failure="nan")
        kept[steps] = numbers_held(y.grad_fn)
        assert y.isnan().any() or steps == 40  # it does not get there in two
    assert 0 < kept[2] == kept[40] < 5 * size + size**2


@pytest.mark.long
@pytest.mark.parametrize("size", [8, 400])
def test_bytes_that_jax_needs(size):
    needed = {}
    for steps in (2, 40):

        def total(x, steps=steps):
            start = jnp.full(size, 1e3)
            return untuned.argmin(slow, x, start, max_steps=steps, on_failure="nan").sum()

        compiled = jax.jit(jax.grad(total)).lower(1.0).compile()
        needed[steps] = compiled.memory_analysis().temp_size_in_bytes
    assert needed[2] == needed[40]
