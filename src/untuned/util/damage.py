"""Reading files that people may have changed, cut short or made themselves.

pandas, pyarrow, zipfile, zlib and NumPy raise a dozen kinds of error for a damaged file. Any kind
becomes one sentence, with its cause attached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def told(sentence: Callable[[Exception], str], own: str | None = None) -> Iterator[None]:
    """Raise `ValueError(sentence(error))` in place of what reading raises.

    Lack of memory is no damage and passes, and so does a ValueError whose text starts with `own`:
    that is a sentence of ours already.
    """
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        if own is not None and isinstance(error, ValueError) and str(error).startswith(own):
            raise
        raise ValueError(sentence(error)) from error
