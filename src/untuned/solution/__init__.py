"""The inner solution as a differentiable function of x, and hypergradients for any optimizer."""

from untuned.solution.argmin import argmin
from untuned.solution.hypergradient import Hypergradient, hypergradient

__all__ = ["Hypergradient", "argmin", "hypergradient"]
