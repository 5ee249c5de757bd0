"""Make the tables of pages whose figures are kept as JSON lines in benchmarks/records.

A page says between two marks which table it wants:

    <!-- records NAME.jsonl part=table | heading: {field:.4f} | heading: {field} -->
    ... the table ...
    <!-- end of records -->

The first part names the file and what a line must have to be in the table. Then comes a column for
each heading, with its cell as a format string; a cell is empty where a line lacks the field.

    python benchmarks/records_page.py            # rewrites the pages
    python benchmarks/records_page.py --check    # says which pages are not up to date
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "benchmarks" / "records"
MARK = re.compile(r"(<!-- records (.+?) -->\n).*?(<!-- end of records -->)", re.DOTALL)


def chosen(what: str) -> list[dict[str, Any]]:
    """The records of a file whose fields have the values asked for."""
    name, *conditions = what.split()
    wanted = dict(condition.split("=") for condition in conditions)
    lines = (RECORDS / name).read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return [r for r in records if all(str(r.get(field)) == v for field, v in wanted.items())]


def cell(template: str, record: dict[str, Any]) -> str:
    """The template filled in, or nothing."""
    try:
        return template.format(**record)
    except KeyError:
        return ""


def table(description: str) -> str:
    """The Markdown table that a mark describes."""
    what, *columns = (part.strip() for part in description.split("|"))
    headings, templates = zip(*(column.split(": ", 1) for column in columns), strict=True)
    rows = [headings, ["---"] * len(headings)]
    rows += [[cell(template, record) for template in templates] for record in chosen(what)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def remade(page: str) -> str:
    """The page with all its tables made anew."""
    return MARK.sub(lambda m: f"{m[1]}\n{table(m[2])}\n{m[3]}", page)


def main() -> None:
    """Rewrite the pages, or check them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args().check
    stale = []
    for path in sorted((ROOT / "docs").rglob("*.md")):
        page = path.read_text(encoding="utf-8")
        if (new := remade(page)) != page:
            stale.append(str(path.relative_to(ROOT)))
            if not check:
                path.write_text(new, encoding="utf-8")
    if check and stale:
        sys.exit(f"Not as the records say: {', '.join(stale)}. Run benchmarks/records_page.py.")


if __name__ == "__main__":
    main()
