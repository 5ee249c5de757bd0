"""Data that stay on disk: memory-mapped arrays and Parquet files, read ahead of the steps."""
