"""Torch where all rows are in memory: products with them made once, and Hessians of linear models.

Each evaluation calls the user's function. Only its products with the rows are replaced
(products.py). Nothing is traced, so whatever else the function reads may change.
"""
