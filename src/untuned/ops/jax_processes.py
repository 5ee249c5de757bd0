"""Numbers on which the processes of a run of JAX agree."""

from __future__ import annotations

import struct

import numpy as np

from untuned.ops import Tree
from untuned.ops.jax_arrays import is_shared


def gathered(content: bytes) -> list[bytes]:
    """The bytes that each process sends, equally many from each."""
    from jax.experimental import multihost_utils

    # Bytes, since numbers would take the width that JAX is set to.
    told = multihost_utils.process_allgather(np.frombuffer(content, np.uint8))
    return [bytes(row) for row in np.asarray(told)]


def max_over_processes(number: float, like: Tree, /) -> float:
    if not is_shared(like):
        return number
    return max(struct.unpack("d", told)[0] for told in gathered(struct.pack("d", number)))


def sum_over_processes(number: int, like: Tree, /) -> int:
    if not is_shared(like):
        return number
    told = (struct.unpack("Q", told)[0] for told in gathered(struct.pack("Q", number)))
    return sum(told) % 2**64


def same_on_all(text: str, like: Tree, /) -> bool:
    if not is_shared(like):
        return True
    digest = int.from_bytes(text.encode(), "little") % (2**61 - 1)
    return len(set(gathered(struct.pack("Q", digest)))) == 1
