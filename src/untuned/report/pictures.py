"""Rows of pixels as small PNG images inside the page."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np


def data_uris(rows: np.ndarray, side: int, largest: float) -> list[str]:
    """One grey image per row; mostly dark ones are drawn as ink on paper."""
    shades = np.clip(np.nan_to_num(rows, nan=0.0) / largest, 0, 1)
    if shades.size and shades.mean() < 0.5:
        shades = 1 - shades
    images = np.round(255 * shades).astype(np.uint8).reshape(len(rows), side, side)
    return [f"data:image/png;base64,{base64.b64encode(_png(image)).decode()}" for image in images]


def _png(image: np.ndarray) -> bytes:
    """An 8-bit grey image in the PNG format: a header, the packed lines, an end."""
    height, width = image.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    lines = b"".join(b"\0" + line.tobytes() for line in image)  # each line unfiltered
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    check = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)
