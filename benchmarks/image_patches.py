"""How good the features of images are: CIFAR-100's 20 coarse classes by a linear classifier.

python benchmarks/image_patches.py FOLDER_OF_CIFAR [--rows 10000]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from untuned.tables import patches


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--test", type=int, default=10_000)
    asked = parser.parse_args()
    with np.load(asked.folder / "cifar100.npz") as data:
        train, test = data["X_train"][: asked.rows], data["X_test"][: asked.test]
        y, y_test = data["coarse_train"][: asked.rows], data["coarse_test"][: asked.test]
    begun = time.perf_counter()
    X, dictionary = patches.of_images(train, seed=0)
    print(f"features of {len(X):,} images: {X.shape[1]:,}, {time.perf_counter() - begun:.0f} s")
    X_test = patches.features(test, dictionary)
    pixels = (train.reshape(len(train), -1), test.reshape(len(test), -1))
    for name, (seen, unseen) in {"patches": (X, X_test), "pixels": pixels}.items():
        scaler = StandardScaler().fit(seen)
        model = LogisticRegression(C=1e-3, max_iter=200).fit(scaler.transform(seen), y)
        print(f"{name}: accuracy {model.score(scaler.transform(unseen), y_test):.3f}")


if __name__ == "__main__":
    main()
