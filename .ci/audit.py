"""Known weaknesses of the packages installed, by pip-audit.

Exit code 1 where there are some; 0 where there are none, and, with a sentence, where the list of
them cannot be reached, since a machine without a network cannot mend that.
"""

import json
import subprocess
import sys
from pathlib import Path

AUDIT = Path(sys.executable).with_name("pip-audit")
MOST_SECONDS = 120


def main() -> int:
    command = [AUDIT, "--format", "json", "--progress-spinner", "off", "--skip-editable"]
    try:
        done = subprocess.run(
            [*command, "--timeout", "10"], capture_output=True, text=True, timeout=MOST_SECONDS
        )
    except subprocess.TimeoutExpired:
        print(f"audit: not made, since there was no answer in {MOST_SECONDS} s.")
        return 0
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        reason = (done.stderr.strip().splitlines() or ["no answer"])[-1][:200]
        print(f"audit: not made, since the list of known weaknesses cannot be reached ({reason}).")
        return 0
    judged = [package for package in packages if "skip_reason" not in package]
    if not judged:
        print("audit: not made, since the list of known weaknesses knows none of these packages.")
        return 0
    found = [
        f"{package['name']} {package['version']}: {weakness['id']}, mended in "
        f"{', '.join(weakness['fix_versions']) or 'no version yet'}"
        for package in judged
        for weakness in package["vulns"]
    ]
    print("\n".join(found) or f"audit: {len(judged)} packages, none with a known weakness.")
    if len(judged) < len(packages):
        print(f"audit: {len(packages) - len(judged)} packages are not on the list.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
