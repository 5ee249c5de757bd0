"""Continual learning with a small memory: Tables 1 and 2 of the paper."""
