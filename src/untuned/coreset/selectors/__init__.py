"""`untuned.coreset.select`: twelve ways to choose rows behind one interface."""
