"""`untuned.coreset.select`: twelve methods of choosing rows behind one interface."""
