"""`untuned reproduce theory`: runs held against the paper's bounds."""
