"""What all packages use, about nothing of optimization: wording, files, locks, bars, limits."""
