"""The inner solution as a differentiable function of x, and hypergradients for any optimizer."""

from untuned.solution.argmin import argmin
from untuned.solution.hypergradient import Hypergradient, hypergradient
from untuned.solution.quadratic import quadratic_program

__all__ = ["Hypergradient", "argmin", "hypergradient", "quadratic_program"]
