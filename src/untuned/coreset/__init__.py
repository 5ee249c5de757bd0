"""Coresets: which few rows stand for all of them, and with what weights."""
