"""Coresets: which few rows stand for all of them, and with what weights."""

from untuned.coreset.selectors.registry import Selection, distribution, names, select

__all__ = ["Selection", "distribution", "names", "select"]
