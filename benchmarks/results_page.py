"""Put what `untuned reproduce all` found into docs/results.md, between its two marks.

python benchmarks/results_page.py results      # as `make results` does after the run
"""

from __future__ import annotations

import argparse
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "results.md"
BEGIN, END = "<!-- made by `make results` -->\n", "<!-- end of what is made -->\n"


def with_results(page: str, results: str) -> str:
    """The page with everything between its marks replaced."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(
            f"The page lacks the line {BEGIN.strip()!r}, or {END.strip()!r} after it; put both "
            "where the tables should be."
        )
    return f"{before}{begin}\n{results.strip()}\n\n{end}{after}"


def main() -> None:
    """Rewrite the page from the folder of a run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="what `untuned reproduce all` was given as --out")
    parser.add_argument("--page", type=Path, default=PAGE)
    given = parser.parse_args()
    results = (given.folder / "results.md").read_text(encoding="utf-8")
    page = given.page.read_text(encoding="utf-8")
    given.page.write_text(with_results(page, results), encoding="utf-8")


if __name__ == "__main__":
    main()
