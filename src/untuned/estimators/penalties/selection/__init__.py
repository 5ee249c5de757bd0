"""How strengths are found: which rows judge them, and the search."""
