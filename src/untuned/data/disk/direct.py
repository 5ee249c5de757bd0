"""Reading parts of a file past the page cache, where the file is too large to stay in it.

The kernel then neither copies the data nor keeps what would be dropped before it is read again:
that takes more processor time than all the rest of reading (docs/lab/scale.md).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from untuned.util import memory

PAGE = 4096  # what such reads must begin and end at, in the file and in memory
SHARE = 0.5  # of the free memory: a larger file bypasses the cache


class FileReader:
    """One file, from which ranges of bytes are read."""

    def __init__(self, path: Path):
        self.path = path
        size = path.stat().st_size
        self._flags = os.O_RDONLY
        if size > SHARE * memory.available():
            self._flags |= getattr(os, "O_DIRECT", 0)  # only Linux has it
        self._scratch = np.empty(0, np.uint8)

    def read(self, offset: int, size: int) -> np.ndarray:
        """`size` bytes from `offset` on; they are valid until the next call."""
        start = offset - offset % PAGE
        wanted = -(-(offset + size - start) // PAGE) * PAGE
        scratch = self._room(wanted)
        try:
            count = self._fill(scratch, start)
        except OSError:  # a file system without direct reads
            self._flags = os.O_RDONLY
            count = self._fill(scratch, start)
        if start + count < offset + size:
            raise ValueError(
                f"{self.path} has become shorter than it was when it was mapped; give the file "
                "as it is now."
            )
        return scratch[offset - start : offset - start + size]

    def _fill(self, scratch: np.ndarray, start: int) -> int:
        file = os.open(self.path, self._flags)
        try:
            filled = 0
            while filled < len(scratch):
                rest: Any = memoryview(scratch[filled:])  # type: ignore[arg-type]
                count = os.preadv(file, [rest], start + filled)
                filled += count
                if count == 0 or count % PAGE:  # the end of the file
                    break
            return filled
        finally:
            os.close(file)

    def _room(self, size: int) -> np.ndarray:
        if len(self._scratch) < size:
            taken = np.empty(size + PAGE, np.uint8)
            start = -taken.ctypes.data % PAGE
            self._scratch = taken[start : start + size]
        return self._scratch[:size]
