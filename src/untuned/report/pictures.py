"""Rows of pixels as small PNG images inside the page."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas


def split(
    rows: pandas.DataFrame, images: dict[str, Any] | None
) -> tuple[list[str] | None, pandas.DataFrame]:
    """An image for each row, if some columns are its pixels, and the other columns."""
    if not images:
        return None, rows
    pixels = rows[images["columns"]].to_numpy(float)
    uris = data_uris(pixels, images["side"], images["largest"])
    return uris, rows.drop(columns=images["columns"])


def data_uris(rows: np.ndarray, side: int, largest: float) -> list[str]:
    """One grey image for each row; where most pixels are dark, shades are reversed."""
    from PIL import Image

    shades = np.clip(np.nan_to_num(rows, nan=0.0) / largest, 0, 1)
    if shades.size and shades.mean() < 0.5:
        shades = 1 - shades
    uris = []
    for image in np.round(255 * shades).astype(np.uint8).reshape(len(rows), side, side):
        file = io.BytesIO()
        Image.fromarray(image).save(file, "png", optimize=True)
        uris.append(f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}")
    return uris
