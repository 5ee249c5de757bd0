"""Save and restore a whole run: written whole or not at all, read without running code.

A checkpoint is a safetensors file: plain arrays and a header of text, with a digest over both.
It says which run it belongs to, so that it cannot be taken for another's.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from untuned.util.folder import put
from untuned.util.wording import brief, reason

FORMAT = "untuned checkpoint 1"


def save(
    path: Path, arrays: Mapping[str, np.ndarray], notes: Mapping[str, Any],
    private: Path | None = None,
) -> None:  # fmt: skip
    """Write arrays and notes (what JSON can hold) to `path`, atomically and durably.

    `private` is the temporary name of whoever holds the path.
    """
    from safetensors.numpy import save as to_bytes

    plain = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps(notes, sort_keys=True)
    header = {"format": FORMAT, "notes": text, "digest": _digest(plain, text)}
    put(path, to_bytes(plain, header), private)


def load(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays and notes of a checkpoint; a sentence where the file is not a whole one."""
    from safetensors import SafetensorError, safe_open

    advice = "give another path, or delete the file to start anew"
    try:
        path.open("rb").close()  # safetensors calls every file it cannot open missing
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            # Another program's file may hold gigabytes, and dtypes that NumPy does not know.
            ours = header.get("format") == FORMAT
            arrays = {name: file.get_tensor(name) for name in file.keys()} if ours else {}  # noqa: SIM118
            notes = dict(json.loads(header.get("notes", "")).items()) if ours else {}
    except OSError as error:
        raise ValueError(
            f"The checkpoint {path} cannot be read ({error.strerror or error}); {advice}."
        ) from None
    except (SafetensorError, ValueError, TypeError, AttributeError, RecursionError) as error:
        # The last four: a dtype NumPy has not, and notes that are no JSON.
        raise ValueError(
            f"The checkpoint {path} is damaged or not a checkpoint of untuned "
            f"({reason(error, 80)}); {advice}."
        ) from None
    if not ours:
        raise ValueError(
            f"The file {path} says its format is {brief(header.get('format'))}; expected "
            f"{FORMAT!r}, so {advice}."
        )
    if header.get("digest") != _digest(arrays, header.get("notes", "")):
        raise ValueError(
            f"The checkpoint {path} is damaged: its contents do not match its digest; {advice}."
        )
    return arrays, notes


def _digest(arrays: Mapping[str, np.ndarray], text: str) -> str:
    digest = hashlib.blake2b(text.encode(), digest_size=16)
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.asarray(array, order="C").data)
    return digest.hexdigest()


def fingerprint(arrays: list[np.ndarray]) -> str:
    """A short text that is the same only for the same numbers in the same shapes."""
    return _digest({str(k): array for k, array in enumerate(arrays)}, "")
