"""Rows that stay on disk and are read as a run goes."""
