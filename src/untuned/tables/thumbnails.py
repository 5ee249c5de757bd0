"""Small copies of suspect images, for the page to show."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from untuned.tables import images

if TYPE_CHECKING:
    import pandas

# A page of many images shows them smaller, so that it still opens on a phone.
SIDES = ((500, 320), (2_000, 160))
SMALLEST = 96


def of_rows(folder: Path, names: Iterable[str]) -> pandas.DataFrame:
    """One data URI per image, in the order given."""
    import pandas

    paths = [folder / name for name in names]
    side = next((side for most, side in SIDES if len(paths) <= most), SMALLEST)
    shown = []
    for path in paths:
        kind, content = images.thumbnail(images.content_of(path), side)
        shown.append(f"data:image/{kind};base64,{base64.b64encode(content).decode()}")
    return pandas.DataFrame({"picture": shown})
