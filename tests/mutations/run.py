"""Break each rule of mutations.toml in a copy of the project, and see the suite go red.

    python -m tests.mutations.run [PART OF A RULE]

Exit status: 0 if every mutation was caught.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUITES = ["tests/conformance", "tests/timer", "tests/transcripts"]


def mutations() -> list[dict]:
    return tomllib.loads((Path(__file__).parent / "mutations.toml").read_text())["mutation"]


def is_caught(mutation: dict) -> bool:
    """True if the suite is red with the rule broken."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "project"
        for name in ("coordinator", "timer", "tests"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        path = copy / mutation["file"]
        text = path.read_text()
        assert text.count(mutation["old"]) == 1, (
            f"{mutation['rule']}: not found once in {path.name}"
        )
        path.write_text(text.replace(mutation["old"], mutation["new"]))
        suites = mutation.get("suites", SUITES)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *suites]
        done = subprocess.run(command, cwd=copy, capture_output=True, check=False, timeout=300)
    # 1: tests failed. Anything else but 0 means that no verdict was reached.
    assert done.returncode in (0, 1), done.stdout.decode()
    return done.returncode == 1


def main() -> int:
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    survivors = 0
    unbroken = {"rule": "nothing", "file": "pyproject.toml", "old": "[build-system]"}
    assert not is_caught({**unbroken, "new": unbroken["old"]}), "the suite is red already"
    for mutation in mutations():
        if wanted in mutation["rule"]:
            caught = is_caught(mutation)
            survivors += not caught
            print(f"{'caught  ' if caught else 'SURVIVED'}  {mutation['rule']}", flush=True)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
