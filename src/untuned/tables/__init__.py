"""A user's table: read from a file, its columns understood, made ready for a linear model."""
