"""All generators, and atheris for files that break a reader: `python fuzz/run.py all --count 50`.

Coverage of the package and of what reads for it in Python guides the search; a target that raises
anything but a sentence ends it with the bytes in `crash-...`, and one that takes more than a minute
in `timeout-...`. `all` gives every target and every generator its share, in processes of their own,
and ends with exit code 1 if one of them found something.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

SLOWEST = 60  # seconds for one file
GENERATORS = ("programs", "tables", "folders", "kills")
SHARE = 10  # times the seconds of a target, for a generator


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", help="one of targets.py's, or all")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--count", type=int, default=50, help="seeds of each generator")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    if asked.target != "all":
        fuzz(asked.target, asked.seconds, asked.seed)
        return
    from targets import TARGETS

    here, seed, found = Path(__file__).parent, str(asked.seed), 0
    calls = {
        name: [here / f"{name}.py", "--start", str(1000 * asked.seed), "--count", str(asked.count),
               "--seconds", str(SHARE * asked.seconds)]
        for name in GENERATORS
    }  # fmt: skip
    is_there = importlib.util.find_spec("atheris") is not None
    if not is_there:
        print("atheris is not installed, so it looks for no damaged files")
    for name in TARGETS if is_there else ():
        calls[name] = [__file__, name, "--seconds", str(asked.seconds), "--seed", seed]
    for name, call in calls.items():
        print(f"== {name}", flush=True)
        found += subprocess.run([sys.executable, *map(str, call)]).returncode != 0
    sys.exit(1 if found else 0)


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
