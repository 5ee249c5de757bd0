"""What linear models are made of, in NumPy: losses, and many models on the same rows."""
