"""All benchmarks in turn, each in a process of its own; prints one Markdown table."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from common import Row, table

SCRIPTS = ("jax_step", "jax_linear_step", "method_steps", "torch_step", "start_up", "memory")


def main() -> int:
    """Run the scripts; the exit code is the last one that was not zero."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    options = ["--quick"] if parser.parse_args().quick else []
    rows: list[Row] = []
    code = 0
    for script in SCRIPTS:
        path = Path(__file__).with_name(f"{script}.py")
        print(f"running {script} ...", file=sys.stderr)
        command = [sys.executable, str(path), "--json", *options]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode:
            code = done.returncode  # the script has said why; the others may still run
        else:
            rows += [Row(*row) for row in json.loads(done.stdout)]
    print(table(rows))
    return code


if __name__ == "__main__":
    sys.exit(main())
