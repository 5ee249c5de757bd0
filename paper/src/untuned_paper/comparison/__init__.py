"""Figures 1 and 2 and the tuning bill: which runs, the runs, their records, their pictures."""
