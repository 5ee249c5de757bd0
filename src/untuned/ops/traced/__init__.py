"""What JAX has traced of f and g, carried out in NumPy: nothing is compiled (in_numpy.py)."""
