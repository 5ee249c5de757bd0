"""`auto`, the method without a number to choose, on all rows and on minibatches."""
