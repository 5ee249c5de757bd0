"""The numerical methods that solvers are made of."""
