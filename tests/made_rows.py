"""Made-up rows of two sides, for runs over several processes or devices."""

import numpy as np

FEATURES, CLASSES = 5, 3


def sides(counts):
    """Features and labels of the inner and of the outer rows."""
    rng = np.random.default_rng(3)
    truth = rng.standard_normal((FEATURES, CLASSES))
    found = []
    for count in counts:
        features = rng.standard_normal((count, FEATURES))
        labels = (features @ truth + rng.standard_normal((count, CLASSES))).argmax(1)
        found.append([features, labels])
    return found
