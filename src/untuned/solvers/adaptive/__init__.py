"""Methods that choose their steps as they go, from constants that a user must know."""
