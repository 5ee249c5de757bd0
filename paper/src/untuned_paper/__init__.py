"""The study of "Tuning-Free Bilevel Optimization": its figures, tables, theory and claims."""
