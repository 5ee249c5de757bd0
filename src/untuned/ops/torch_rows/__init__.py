"""Torch where all rows are in memory: products with them made once, and Hessians of linear models.

The user's function is called as ever, each time anew, and only its products with the rows
themselves are done in another way (products.py). So nothing is traced, and whatever else a
function reads may change.
"""
