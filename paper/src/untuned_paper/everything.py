"""`untuned reproduce all`: every figure and table, and one page that links them.

Each part has a folder of its own and is what the command of its name makes there. A part that is
finished is not made again, and within a part finished runs are not.
"""

from __future__ import annotations

import html
import json
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from untuned.report import page
from untuned.util import folder
from untuned_paper import claims, results
from untuned_paper import reproduce as recipes

DONE = "parts.json"


class Part(NamedTuple):
    """A recipe, its folder, its page and picture there, and the options `--quick` gives it."""

    name: str
    folder: str
    page: str
    picture: str | None = None
    quick: dict[str, Any] | None = None


PARTS = (
    Part("figure1", "comparison", "figure1.html", "figure1.png"),
    Part("figure2", "comparison", "figure2.html", "figure2.png"),
    Part("tuning", "comparison", "tuning.html", quick={"method": ["d-tfbo", "s-tfbo"]}),
    Part("table1", "memory", "table1.html"),
    Part("table2", "memory", "table2.html", quick={"tasks": 3, "seeds": 1}),
    Part("theory", "theory", "report.html", "averages.png"),
)


def reproduce(out: Path, quick: bool, seed: int, max_seconds: float | None) -> str:
    """Make what is missing, then `index.html` and, for a page of docs, `results.md`."""
    if max_seconds is not None:
        raise ValueError(
            "reproduce all takes no --max-seconds, since its parts count in different ways; leave "
            "it out, or run the parts one by one."
        )
    settings = {"quick": quick, "seed": seed, "untuned": version("untuned")}
    done = _read(out, settings)
    for part in PARTS:
        if part.name in done and (out / part.folder / part.page).exists():
            continue
        start = time.perf_counter()
        try:
            options = part.quick or {} if quick else {}
            words = recipes.run(part.name, out / part.folder, quick, seed, None, **options)
        except (ValueError, OSError) as error:  # data that are not here; the others go on
            done[part.name] = {"failed": str(error)}
            continue
        done[part.name] = {"words": words, "seconds": round(time.perf_counter() - start)}
        _write(out, settings, done)
    verdicts = claims.judged(out)
    with folder.added_whole(out) as target:
        verdicts.to_csv(target / "claims.csv", index=False)
        _write_page(target / "index.html", quick, verdicts, done)
        text = results.markdown(quick, verdicts, done)
        (target / "results.md").write_text(text, encoding="utf-8")
    return _summary(out, verdicts, done)


def _read(out: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The parts that were finished with the same settings."""
    path = out / DONE
    if not path.exists():
        return {}
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        parts, same = kept["parts"], kept["settings"] == settings
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{path} is not a list of finished parts; remove it, and finished runs are still not "
            "repeated."
        ) from None
    return parts if same else {}


def _write(out: Path, settings: dict[str, Any], done: dict[str, Any]) -> None:
    finished = {name: part for name, part in done.items() if "failed" not in part}
    text = json.dumps({"settings": settings, "parts": finished}, indent=1)
    folder.put(out / DONE, text.encode())


def _write_page(path: Path, quick: bool, verdicts: Any, done: dict[str, Any]) -> None:
    lead = "Each claim of the paper beside what the records here say of it, by a fixed rule."
    if quick:
        lead += " Quick: fewer rows, shorter runs and fewer seeds than the paper's, so the verdicts"
        lead += " are about these."
    sections = [page.Section("The claims", "", page.table(verdicts, prose=True))]
    for part in PARTS:
        made = done[part.name]
        if "failed" in made:
            sections.append(page.Section(part.name, f"Not made: {made['failed']}"))
            continue
        target = f"{part.folder}/{part.page}"
        body = f'<p><a href="{target}">{target}</a></p><pre>{html.escape(made["words"])}</pre>'
        if part.picture:
            body = f'{body}<img src="{part.folder}/{part.picture}" alt="" style="max-width:100%">'
        text = f"untuned reproduce {part.name}, {made['seconds'] / 60:.1f} minutes."
        sections.append(page.Section(part.name, text, body))
    page.write(path, "The paper, reproduced", lead, sections, f"untuned {version('untuned')}.")


def _summary(out: Path, verdicts: Any, done: dict[str, Any]) -> str:
    lines = [
        f"{row['here']}: {row['the paper says']}"
        + (f" ({row['figures']})" if row["figures"] else "")
        for row in verdicts.to_dict("records")
    ]
    lines += [
        f"{name} not made: {part['failed']}" for name, part in done.items() if "failed" in part
    ]
    minutes = sum(part.get("seconds", 0) for part in done.values()) / 60
    lines.append(
        f"Page: {out / 'index.html'}   claims: {out / 'claims.csv'}   {minutes:.1f} minutes"
    )
    return "\n".join(lines)
