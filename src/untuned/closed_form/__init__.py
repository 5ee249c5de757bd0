"""Linear models with derivatives of their own, in NumPy."""
