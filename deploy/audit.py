"""Known weaknesses in what the lock files pin: pip-audit, and what its answer is worth.

    python deploy/audit.py

Exit status: 0 everything was looked up and nothing is known against it; 1 something is; 3 not
everything could be looked up, because the index did not answer or does not keep such a list.
pip-audit itself ends with 0 then, which reads like a clean bill.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LOCKS = ("requirements.lock", "postgres.lock", "build.lock")
CLEAN, WEAK, UNKNOWN = 0, 1, 3


def judge(dependencies: list[dict[str, Any]]) -> tuple[int, list[str]]:
    """The exit status for pip-audit's list, and what to say about it."""
    lines = [
        f"{dependency['name']} {dependency['version']}: {weakness['id']}, "
        f"fixed in {', '.join(weakness['fix_versions']) or 'no version yet'}"
        for dependency in dependencies
        for weakness in dependency.get("vulns", ())
    ]
    unknown = [dependency["name"] for dependency in dependencies if "skip_reason" in dependency]
    if unknown or not dependencies:
        lines.append(
            f"NOT AUDITED: {len(unknown)} of {len(dependencies)} could not be looked up. "
            "The index did not answer or has no such list; nothing is said about "
            f"{', '.join(unknown) or 'anything'}."
        )
    if any(dependency.get("vulns") for dependency in dependencies):
        return WEAK, lines
    if unknown or not dependencies:
        return UNKNOWN, lines
    return CLEAN, [f"Nothing is known against {len(dependencies)} packages."]


def look_up(lock: Path) -> list[dict[str, Any]]:
    """pip-audit's list for a lock file; empty if nobody answered it."""
    flags = ["--disable-pip", "--require-hashes", "--progress-spinner", "off", "--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "pip_audit", *flags, "--requirement", str(lock)],
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.stdout.strip():
        print(done.stderr.strip(), file=sys.stderr)
        return []
    found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    return found


def main() -> int:
    statuses = []
    for name in LOCKS:
        status, lines = judge(look_up(Path(__file__).parent / name))
        statuses.append(status)
        print(f"{name}:", *lines, sep="\n  ")
    return WEAK if WEAK in statuses else max(statuses)


if __name__ == "__main__":
    raise SystemExit(main())
