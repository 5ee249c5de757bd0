"""Which rows a step sees: batches, the streams they are drawn from, and rows kept on disk."""
