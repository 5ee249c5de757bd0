"""Weights for rows inside a user's own torch training loop (docs/networks.md)."""
