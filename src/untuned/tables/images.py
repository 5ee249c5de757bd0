"""Images in one folder per class: found, read, and brought to one size.

PNG and JPEG only, by their content: fewer decoders means fewer ways to be attacked by a file.
"""

from __future__ import annotations

import base64
import hashlib
import io
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from untuned.util import memory
from untuned.util.wording import brief, is_unicode

if TYPE_CHECKING:
    import pandas
    from PIL.Image import Image

SIDE = 32  # pixels of the squares that features are made of
MOST_PIXELS = 2**27  # of one image; a small file can claim to hold far more
MOST_BYTES = 24  # per pixel, while an image is turned upright and laid on white
TOO_LARGE, NO_FILE = "too large", "a pipe, a device or a broken link"
SUFFIXES = (".png", ".jpg", ".jpeg", ".jpe", ".jfif")
FORMATS = ("PNG", "JPEG")
# The longest sides of thumbnails: a page of many shows them smaller, to open on a phone as well.
SIDES = ((500, 320), (2_000, 160))
SMALLEST = 96
OURS = ("image", "sha256")  # columns of the table beside the label
BESIDE_IMAGES = ("thumbs.db", "desktop.ini")  # what file managers leave


class Folder(NamedTuple):
    """The images that can be read, in the order of their paths."""

    frame: pandas.DataFrame  # image (path in the folder), the label, sha256
    squares: np.ndarray  # uint8, rows x SIDE x SIDE x 3
    damaged: list[str]  # paths, with the reason


def read(folder: Path, label: str) -> Folder:
    """All images of a folder; those that cannot be decoded are left out and named."""
    import pandas

    if label in OURS:
        raise ValueError(
            f"--label {label} is what a column of every table of images is called "
            f"({', '.join(OURS)}); leave it out, since the folders in {folder} are the labels."
        )
    classes = sorted(each for each in folder.iterdir() if each.is_dir() and not _is_hidden(each))
    if not classes:
        raise ValueError(
            f"{folder} has no folders in it; expected one folder for each class, with PNG or JPEG "
            "images."
        )
    if len(classes) == 1:
        raise ValueError(
            f"{folder} has one class only ({brief(classes[0].name)}); expected at least two "
            "folders with images."
        )
    rows: list[tuple[str, str, str]] = []
    squares, damaged = [], []
    for each in classes:
        before = len(rows)
        for path in sorted(each.rglob("*")):
            if path.is_dir() or _is_hidden(path):
                continue
            name = path.relative_to(folder).as_posix()
            if path.suffix.lower() not in SUFFIXES:
                raise ValueError(
                    f"{brief(str(folder / name))} is no image by its name; expected only PNG and "
                    "JPEG files in the folders of the classes, so move it elsewhere."
                )
            if not is_unicode(name):
                damaged.append(f"{name} (its name is not UTF-8)")
                continue
            try:
                content = content_of(path)
                squares.append(_square(content))
            except MemoryError:
                raise
            except Exception as error:  # Pillow raises a dozen kinds for a damaged file
                damaged.append(f"{name} ({_why(error)})")
                continue
            rows.append((name, each.name, hashlib.sha256(content).hexdigest()[:16]))
        if len(rows) == before:
            raise ValueError(
                f"{brief(str(each))} has no image that can be read; expected PNG or JPEG images in "
                "the folder of each class."
            )
    frame = pandas.DataFrame(rows, columns=[OURS[0], label, OURS[1]])
    return Folder(frame, np.stack(squares), damaged)


def _is_hidden(path: Path) -> bool:
    return path.name.startswith(".") or path.name.lower() in BESIDE_IMAGES


def _why(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "neither PNG nor JPEG"
    return str(error) if str(error) in (TOO_LARGE, NO_FILE) else "damaged"


def content_of(path: Path) -> bytes:
    """The bytes of an image; what is no file of a known size is not opened."""
    if not path.is_file():
        raise ValueError(NO_FILE)
    if path.stat().st_size > memory.available() / 2:
        raise ValueError(TOO_LARGE)
    return path.read_bytes()


def opened(content: bytes, side: int) -> Image:
    """An image upright, in colour and on white, no larger than needed for `side`."""
    from PIL import Image, ImageOps

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about metadata, and sizes, which are checked here
        image: Any = Image.open(io.BytesIO(content), formats=FORMATS)
        pixels = image.width * image.height
        if pixels > min(MOST_PIXELS, memory.available() / MOST_BYTES):
            raise ValueError(TOO_LARGE)
        image.draft("RGB", (side, side))  # JPEG decodes smaller sizes faster
        image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I"):  # 16 bits of grey, of which RGB would cut the upper ones
            shades = np.asarray(image, np.float64) / 256
            image = Image.fromarray(shades.clip(0, 255).astype(np.uint8))
        if image.has_transparency_data:
            image = image.convert("RGBA")
            paper = Image.new("RGBA", image.size, "white")
            image = Image.alpha_composite(paper, image)
        return image.convert("RGB")


def _square(content: bytes) -> np.ndarray:
    image = opened(content, SIDE)
    # Reducing averages over pixels; thin images are squeezed, since cropping could lose the object.
    return np.asarray(image.resize((SIDE, SIDE), resample=4), np.uint8)


def thumbnails(folder: Path, names: Iterable[str]) -> pandas.DataFrame:
    """Smaller images for a page, as one data URI each, in the order given."""
    import pandas

    paths = [folder / name for name in names]
    side = next((side for most, side in SIDES if len(paths) <= most), SMALLEST)
    return pandas.DataFrame({"picture": [_thumbnail(content_of(path), side) for path in paths]})


def _thumbnail(content: bytes, side: int) -> str:
    """An image as a data URI; small ones are PNG, exactly."""
    image = opened(content, side)
    image.thumbnail((side, side))
    kind = "PNG" if max(image.size) <= 64 else "JPEG"
    written = io.BytesIO()
    image.save(written, kind, **({"optimize": True} if kind == "PNG" else {"quality": 82}))
    return f"data:image/{kind.lower()};base64,{base64.b64encode(written.getvalue()).decode()}"
