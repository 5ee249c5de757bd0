"""A hook of mkdocs: the notebooks of examples/ become pages of the site, with their results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

EXAMPLES = Path(__file__).parent.parent / "examples"


def on_files(files: Files, config: Any) -> Files:
    """Add a page for each notebook: `notebooks/<name>.md`."""
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        page = f"notebooks/{path.stem}.md"
        files.append(File.generated(config, page, content=markdown(path)))
    return files


def markdown(path: Path) -> str:
    """The cells of a notebook and what they printed or drew."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text.replace("](../docs/", "](../"))
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            if output["output_type"] == "stream":
                parts.append(f"```text\n{''.join(output['text']).rstrip()}\n```")
            elif "image/png" in output["data"]:
                picture = "".join(output["data"]["image/png"]).replace("\n", "")
                parts.append(f"![What the lines above draw](data:image/png;base64,{picture})")
    return "\n\n".join(parts) + "\n"
