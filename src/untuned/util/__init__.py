"""What every room uses and knows nothing of optimization: wording, files, locks, bars, limits."""
