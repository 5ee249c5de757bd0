"""Linear models that learn their penalties."""
