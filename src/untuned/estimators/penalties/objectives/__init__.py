"""The bilevel problems of the linear models, and the solvers of their inner ones."""
