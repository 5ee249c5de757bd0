"""Let atheris look for files that break a reader: `python fuzz/run.py TARGET --seconds 60`.

Coverage of the package and of what reads for it in Python guides the search; a target that raises
anything but a sentence ends it with the bytes in `crash-...`, and one that takes more than a minute
in `timeout-...`. `all` gives every target its share, in processes of their own.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

SLOWEST = 60  # seconds for one file


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", help="one of targets.py's, or all")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if asked.target != "all":
        fuzz(asked.target, asked.seconds, asked.seed)
        return
    from targets import TARGETS

    for name in TARGETS:
        print(f"== {name}", flush=True)
        given = ["--seconds", str(asked.seconds), "--seed", str(asked.seed)]
        code = subprocess.run([sys.executable, __file__, name, *given]).returncode
        if code:
            sys.exit(code)


def fuzz(name: str, seconds: int, seed: int) -> None:
    """Search for one target; libFuzzer ends the process."""
    import atheris

    # Python code is watched where it is imported, so this comes before the readers.
    with atheris.instrument_imports(include=["untuned", "zipfile", "json", "csv"]):
        import targets

    folder = Path(tempfile.mkdtemp())
    corpus = folder / "corpus"
    corpus.mkdir()
    for number, content in enumerate(targets.seeds(name, folder)):
        (corpus / str(number)).write_bytes(content)
    target = targets.TARGETS[name]
    atheris.Setup(
        [
            sys.argv[0], str(corpus), f"-max_total_time={seconds}", f"-seed={seed}",
            f"-timeout={SLOWEST}", "-max_len=16384", "-print_final_stats=1", "-verbosity=0",
        ],
        lambda content: target(folder, content),
    )  # fmt: skip
    atheris.Fuzz()


if __name__ == "__main__":
    main()
