"""A campaign: every target for its share of the executions, and the record of it."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.fuzz import corpus
from tests.fuzz.engines import has_atheris
from tests.fuzz.targets import SHARES, load

ROOT = Path(__file__).parents[2]
LENGTH_MAX = 4_096
PACKAGES = (
    "atheris",
    "protobuf",
    "pyarrow",
    "google-crc32c",
    "sqlalchemy",
    "confluent-kafka",
    "kio",
)


def run(
    names: list[str], executions: int, seed: int, record: Path | None, found: Path | None
) -> bool:
    """Run the targets one after the other; True if nothing broke.

    Args:
        executions: in all, divided by `SHARES`.
        seed: of the first target's randomness; the next have the next.
        record: where to write what came of it.
        found: a folder for the inputs that reached something new, one below it a target.
    """
    total = sum(SHARES[name] for name in names)
    results = {}
    for number, name in enumerate(names):
        share = -(-executions * SHARES[name] // total)
        print(f"{name}: {share} executions", flush=True)
        results[name] = run_target(name, share, seed + number, found)
        print(f"{name}: {results[name]}", flush=True)
    summary = {
        "executions": sum(result["executions"] for result in results.values()),
        "seconds": round(sum(result["seconds"] for result in results.values())),
        "crashes": sum(result["crashes"] for result in results.values()),
    }
    if record is not None:
        _write(record, summary, results, seed)
    print(summary)
    return summary["crashes"] == 0


def run_target(name: str, executions: int, seed: int, found: Path | None) -> dict[str, Any]:
    """One target in a process of its own. A crash ends it; its input is kept beside the log."""
    with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as folder:
        work = Path(folder)
        corpus.write_folder([*load(name).seeds(), *corpus.read(name)], work / "seeds")
        new = work / "found" if found is None else (found / name).absolute()
        new.mkdir(parents=True)
        command = [sys.executable, "-m", "tests.fuzz", "drive", name]
        if has_atheris():
            command += [f"-runs={executions}", f"-seed={seed}", f"-max_len={LENGTH_MAX}"]
            command += [f"-artifact_prefix={work}/", str(new), str(work / "seeds")]
        else:
            command += [str(executions), str(seed), str(work)]
        started = time.monotonic()
        done = subprocess.run(
            command, cwd=ROOT, stderr=subprocess.PIPE, text=True, errors="replace", check=False
        )
        seconds = time.monotonic() - started
        broken = [*work.glob("crash-*"), *work.glob("oom-*"), *work.glob("timeout-*")]
        if done.returncode != 0:
            _keep(name, broken, done.stderr)
        for told in re.findall(r"^the dearest .*", done.stderr, re.MULTILINE)[-1:]:
            print(told, file=sys.stderr)
        return _result(done, seconds)


def _result(done: subprocess.CompletedProcess[str], seconds: float) -> dict[str, Any]:
    said = re.findall(r"^(?:Done |#)(\d+)", done.stderr, re.MULTILINE)
    features = re.findall(r"cov: (\d+) ft: (\d+)", done.stderr)
    result: dict[str, Any] = {
        "executions": int(said[-1]) if said else 0,
        "seconds": round(seconds, 1),
        "crashes": int(done.returncode != 0),
    }
    if features:
        result["branches"], result["features"] = map(int, features[-1])
    return result


def _keep(name: str, broken: list[Path], log: str) -> None:
    """Show what broke, and leave the input where the campaign was started."""
    print(log[-6_000:], file=sys.stderr)
    for path in broken:
        kept = Path.cwd() / f"{name}-{path.name}"
        shutil.copy(path, kept)
        print(f"{kept}: {path.read_bytes().hex()}", file=sys.stderr)


def _write(record: Path, summary: dict[str, Any], results: dict[str, Any], seed: int) -> None:
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    content = {
        "when": datetime.now(UTC).date().isoformat(),
        "engine": "atheris" if has_atheris() else "mutator",
        "seed": seed,
        **summary,
        "targets": results,
        "versions": versions,
    }
    record.write_text(json.dumps(content, indent=2) + "\n")
