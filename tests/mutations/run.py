"""Break each rule of `rules/` in a copy of the project, and see a test go red.

    python -m tests.mutations.run [PART ...] [--changed [COMMIT]] [--workers N]

A PART is a part of a rule or of its place; without any, all rules are broken. `--changed` takes
those in files that differ from a commit, or whose tests do. The test that is red has to be green
without the mutation. Exit status: 0 if every mutation was caught.

A file of `rules/` holds the rules of one room. In each entry `place` is a file and what is defined
in it (see `places.py`), `old` is there once and becomes `new`, and `suites` is what pytest runs, as
narrow as holds the rule.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.places import NoPlace, changed

ROOT = Path(__file__).parents[2]
SUITES = ("tests/conformance", "tests/timer", "tests/transcripts")
COPIED = ("coordinator", "timer", "tests", "deploy", "protos", "pyproject.toml")
LIMIT_S = 600
"""Time limit of one run of pytest. It guards against hangs; each test has a limit of its own."""
_RED = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+)", re.MULTILINE)
"""A test, with all its parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A rule, and how to break it: in a place (see `places.py`) `new` takes the place of `old`.

    suites: what pytest is to run.
    """

    rule: str
    place: str
    old: str
    new: str
    suites: tuple[str, ...] = SUITES

    @property
    def file(self) -> str:
        return self.place.partition("::")[0]


def mutations() -> list[Mutation]:
    """Mutations of all rooms, each room's in the order of its file."""
    return [
        Mutation(**{**entry, "suites": tuple(entry.get("suites", SUITES))})
        for room in sorted((Path(__file__).parent / "rules").glob("*.toml"))
        for entry in tomllib.loads(room.read_text())["mutation"]
    ]


# --- A copy of the project, and one rule broken in it -------------------------------------------


class Tree:
    """A copy of the project for one worker, with bytecode that lasts from run to run."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        ignore = shutil.ignore_patterns("__pycache__", ".mypy_cache", "*.log")
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, folder / name, ignore=ignore)
            else:
                shutil.copy2(ROOT / name, folder / name)

    @contextlib.contextmanager
    def broken(self, mutation: Mutation) -> Iterator[None]:
        """The mutation is in the tree meanwhile."""
        path, text = changed(self.root, mutation.place, mutation.old, mutation.new)
        before = path.read_text()
        _write(path, text)
        try:
            yield
        finally:
            _write(path, before)

    def run(self, suites: Iterable[str]) -> str:
        """The first test that is red; empty if all are green.

        Raises:
            NoVerdict: pytest did not come to the end.
        """
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *suites]
        with subprocess.Popen(
            command,
            cwd=self.root,
            # Processes that tests start elsewhere run the code of the tree too.
            env={**os.environ, "PYTHONPATH": str(self.root)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                raise NoVerdict(f"no end after {LIMIT_S} s") from None
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(
                        process.pid, signal.SIGKILL
                    )  # Processes that a broken rule left behind.
        if process.returncode == 0:
            return ""
        red = _RED.search(output)
        if process.returncode != 1 or red is None:  # 1: tests failed.
            raise NoVerdict(f"pytest ended with {process.returncode}:\n{output[-2_000:]}")
        return red[1]


class NoVerdict(Exception):
    """A mutation could not be judged. The message says why."""


def _write(path: Path, text: str) -> None:
    """Python trusts bytecode whose source has the same second and size: it is removed."""
    path.write_text(text)
    Path(importlib.util.cache_from_source(str(path))).unlink(missing_ok=True)


# --- All of them --------------------------------------------------------------------------------


class Verdicts:
    """Whether mutations are caught. Workers may share one.

    A test that is red with a mutation says something if it is green without; each is asked once.
    """

    def __init__(self) -> None:
        self._green: set[str] = set()

    def judge(self, tree: Tree, mutation: Mutation) -> tuple[bool, str]:
        """Whether a mutation is caught, and a line or two about it."""
        try:
            with tree.broken(mutation):
                red = tree.run(mutation.suites)
            if not red:
                return False, f"SURVIVED    {mutation.rule}\n    {mutation.place}"
            if red not in self._green:
                if tree.run([red]):
                    raise NoVerdict(f"{red} is red without the mutation")
                self._green.add(red)
        except (NoPlace, NoVerdict) as error:
            return False, f"NO VERDICT  {mutation.rule}\n    {error}"
        return True, f"caught      {mutation.rule}\n    by {red}"


def judge_all(some: Iterable[Mutation], workers: int) -> Iterator[tuple[Mutation, bool, str]]:
    """Each mutation with its verdict, as verdicts come; one is taken when a worker is free."""
    verdicts = Verdicts()
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        trees: queue.SimpleQueue[Tree] = queue.SimpleQueue()
        for number in range(workers):
            trees.put(Tree(Path(folder) / str(number)))

        def judge(mutation: Mutation) -> tuple[Mutation, bool, str]:
            tree = trees.get()
            try:
                return mutation, *verdicts.judge(tree, mutation)
            finally:
                trees.put(tree)

        source, running = iter(some), set[Future[tuple[Mutation, bool, str]]]()
        with ThreadPoolExecutor(workers) as pool:
            while True:
                free = workers - len(running)
                running |= {pool.submit(judge, each) for each in itertools.islice(source, free)}
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (each.result() for each in done)


def break_all(some: list[Mutation], workers: int) -> int:
    """Number of mutations that were not caught."""
    uncaught = 0
    for _, is_caught, told in judge_all(some, workers):
        uncaught += not is_caught
        print(told, flush=True)
    return uncaught


def changed_files(commit: str) -> set[str]:
    """Mutations that differ from a commit, or are new."""
    differ = ["git", "diff", "--name-only", commit]
    new = ["git", "ls-files", "--others", "--exclude-standard"]
    return {
        file
        for command in (differ, new)
        for file in subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    }


def selected(parts: list[str], commit: str | None) -> list[Mutation]:
    """Options of the command line."""
    some = mutations()
    if parts:
        some = [m for m in some if any(part in m.rule or part in m.place for part in parts)]
    if commit is not None:
        files = changed_files(commit)
        some = [m for m in some if m.file in files or _touches(m.suites, files)]
    return some


def _touches(suites: tuple[str, ...], files: set[str]) -> bool:
    return any(file == suite or file.startswith(f"{suite}/") for suite in suites for file in files)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations.run", description=__doc__)
    parser.add_argument("part", nargs="*", help="part of a rule or of a place")
    parser.add_argument(
        "--changed", nargs="?", const="main", metavar="COMMIT", help="default: main"
    )
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    some = selected(options.part, options.changed)
    uncaught = break_all(some, options.workers) if some else 0
    print(f"{len(some) - uncaught} of {len(some)} caught")
    return 1 if uncaught else 0


if __name__ == "__main__":
    sys.exit(main())
