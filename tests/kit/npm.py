"""Packages of Node that tests install: with the registry of npm, or a reason why not."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

NODE_MINIMUM = 20
NO_REGISTRY = re.compile(
    r"\b(?:EAI_AGAIN|ECONNREFUSED|ECONNRESET|ENETUNREACH|ENOTFOUND|ETIMEDOUT)\b"
)


def missing_node() -> str | None:
    """Reason for which nothing can be installed with npm here."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    if int(version.stdout.lstrip("v").split(".")[0]) < NODE_MINIMUM:
        return f"Node {version.stdout.strip()} found; {NODE_MINIMUM} or newer is needed"
    return None


def npm(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["npm", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def install(folder: Path) -> str | None:
    """Install what a folder's lock file names; the reason, if no registry can be reached."""
    done = npm(folder, "ci", "--no-audit", "--no-fund", "--fetch-retries=1")
    if unreachable := NO_REGISTRY.search(done.stderr):
        return f"no npm registry can be reached: {unreachable.group()}"
    assert done.returncode == 0, done.stdout + done.stderr
    return None
