"""Saving a run and resuming it, bit for bit."""
