"""Break the product at random places, and list what no test has noticed.

    python -m tests.campaigns.mutations.sample [PART ...] [--seed N] [--minutes N] [--count N]
        [--workers N]

An hour by default, or `--count` mutations if those are fewer. A PART is a part of a path, and
selects among the files of the rooms below. A seed names an order of all mutations, so that the same
command makes the same ones. Each survivor is printed with its change: a rule that no test holds,
code that no rule needs, or a change that changes nothing. Exit status: 0, whatever has survived.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib.util
import itertools
import os
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.campaigns.mutations.operators import Edit, edits

ROOT = Path(__file__).parents[3]
COPIED = ("coordinator", "timer", "tests", "deploy", "protos", "pyproject.toml")
ROOMS = {
    "coordinator/core": (
        "tests/unit/core", "tests/protocol", "tests/unit/shard", "tests/simulation/model",
        "tests/simulation/worlds/test_seeds.py",
    ),
    "coordinator/shard": (
        "tests/unit/shard", "tests/protocol", "tests/unit/runtime",
        "tests/simulation/worlds/test_seeds.py",
    ),
    "coordinator/client/member": (
        "tests/unit/client", "tests/protocol/sessions", "tests/unit/testing",
    ),
}  # fmt: skip
"""Folders, and the fast tests that hold their rules."""
LIMIT_S = 600
"""Time limit of one run of pytest. It guards against hangs; each test has a limit of its own."""
HANG = "0.2"
"""Patience with a test: many a mutation is a loop without an end."""


@dataclass(frozen=True, slots=True)
class Change:
    """An edit of a file, and the tests that should notice."""

    file: str
    source: str
    edit: Edit
    suites: tuple[str, ...]

    def __str__(self) -> str:
        line = self.source.count("\n", 0, self.edit.begin) + 1
        return f"{self.file}:{line}: {self.edit.operator}"

    def difference(self) -> str:
        """Lines that go, and those that come."""
        before, after = (text.splitlines() for text in (self.source, self.edit.of(self.source)))
        lines = difflib.unified_diff(before, after, n=0, lineterm="")
        return "\n".join(f"    {line}" for line in itertools.islice(lines, 3, None))


def changes(parts: Iterable[str] = ()) -> list[Change]:
    """All that the program can make, in the order of files."""
    paths = [
        (path, suites)
        for room, suites in ROOMS.items()
        for path in sorted((ROOT / room).rglob("*.py"))
        if not parts or any(part in path.as_posix() for part in parts)
    ]
    return [
        Change(path.relative_to(ROOT).as_posix(), source, edit, suites)
        for path, suites in paths
        for source in [path.read_text()]
        for edit in edits(source)
    ]


def sample(some: list[Change], seed: int, minutes: float) -> Iterator[Change]:
    """Changes in the order that a seed names, until the time is over."""
    ends_s = time.monotonic() + 60 * minutes
    chosen = random.Random(seed).sample(some, len(some))
    return itertools.takewhile(lambda _: time.monotonic() < ends_s, chosen)


class Tree:
    """A copy of the project for one worker, with bytecode that lasts from run to run."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        ignore = shutil.ignore_patterns("__pycache__", ".mypy_cache", "*.log")
        for name in COPIED:
            copy = shutil.copy2 if (ROOT / name).is_file() else shutil.copytree
            copy(ROOT / name, folder / name, **({} if copy is shutil.copy2 else {"ignore": ignore}))

    def verdict(self, change: Change) -> str:
        """Whether tests notice a change, in a word or two."""
        path = self.root / change.file
        self._write(path, change.edit.of(change.source))
        try:
            status = self._run(change.suites)
        finally:
            self._write(path, change.source)
        return {0: "SURVIVED", 1: "caught"}.get(status, f"NO VERDICT (pytest: {status})")

    def _run(self, suites: Iterable[str]) -> int | str:
        command = [sys.executable, "-m", "pytest", "-qx", "--fast", "-p", "no:cacheprovider"]
        with subprocess.Popen(
            [*command, *suites],
            cwd=self.root,
            # Processes that tests start elsewhere run the code of the tree too.
            env={"TESTS_PATIENCE": HANG, **os.environ, "PYTHONPATH": str(self.root)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                return process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                return f"no end after {LIMIT_S} s"
            finally:
                with contextlib.suppress(ProcessLookupError):  # Processes that are left behind.
                    os.killpg(process.pid, signal.SIGKILL)

    def _write(self, path: Path, text: str) -> None:
        """Python trusts bytecode whose source has the same second and size: it is removed."""
        path.write_text(text)
        Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


def judge_all(some: Iterable[Change], workers: int) -> Iterator[tuple[Change, str]]:
    """Each change with its verdict; one is taken when a worker is free."""
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        for number in range(workers):
            trees.put(Tree(Path(folder) / str(number)))

        def judge(change: Change) -> tuple[Change, str]:
            tree = trees.get()
            try:
                return change, tree.verdict(change)
            finally:
                trees.put(tree)

        source = iter(some)
        with ThreadPoolExecutor(workers) as pool:
            while batch := [*itertools.islice(source, workers)]:
                yield from pool.map(judge, batch)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaigns.mutations.sample", description=__doc__
    )
    parser.add_argument("part", nargs="*", help="part of a file's path")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--count", type=int, default=sys.maxsize)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    some = changes(options.part)
    print(f"seed {options.seed}: a sample of {len(some)} mutations", flush=True)
    chosen = itertools.islice(sample(some, options.seed, options.minutes), options.count)
    judged = caught = 0
    for change, verdict in judge_all(chosen, options.workers):
        judged += 1
        caught += verdict == "caught"
        more = "" if verdict == "caught" else f"\n{change.difference()}"
        print(f"{verdict:10}  {change}{more}", flush=True)
    print(f"seed {options.seed}: {caught} of {judged} caught")
    return 0


if __name__ == "__main__":
    sys.exit(main())
