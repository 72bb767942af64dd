"""Break the product at random places, and list what no test has noticed.

    python -m tests.mutations.sample [PART ...] [--seed N] [--minutes N] [--count N] [--workers N]

An hour by default, or `--count` mutations if those are fewer. A PART is a part of a place, and
selects among the rooms below. A seed names an order of all mutations, so that the same command
makes the same ones. Each survivor is printed with its change: a rule that no test holds, code that
no rule needs, or a change that changes nothing. Exit status: 0, whatever has survived.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.mutations.operators import Edit, edits
from tests.mutations.places import NoPlace
from tests.mutations.run import ROOT, Mutation, judge_all

ROOMS = {
    "coordinator/core": (
        "tests/core", "tests/conformance", "tests/transcripts", "tests/shard", "tests/model",
        "tests/worlds/test_seeds.py",
    ),
    "coordinator/shard": (
        "tests/shard", "tests/conformance", "tests/transcripts", "tests/runtime",
        "tests/worlds/test_seeds.py",
    ),
    "coordinator/client/member": ("tests/client", "tests/testing"),
}  # fmt: skip
"""Folders, and the fast tests that hold their rules."""
HANG = "0.2"
"""Patience with a test: many a mutation is a loop without an end."""


@dataclass(frozen=True, slots=True)
class Change:
    """An edit of a file, and the tests that should notice."""

    file: str
    source: str
    edit: Edit
    suites: tuple[str, ...]

    @property
    def place(self) -> str:
        return f"{self.file}::{self.edit.place}"

    def as_mutation(self) -> Mutation:
        """The form in which the runner takes it.

        Raises:
            NoPlace: its lines stand there twice.
        """
        old, new = self.edit.as_text(self.source)
        line = self.source.count("\n", 0, self.edit.begin) + 1
        new_words = " ".join(self.edit.new.split())
        rule = f"{self.file}:{line}: {self.edit.operator} becomes {new_words}"
        suites = ("--fast", *self.suites)
        return Mutation(rule=rule, place=self.place, old=old, new=new, suites=suites)


def changes(parts: Iterable[str] = ()) -> list[Change]:
    """All that the program can make, in the order of files."""
    made = [
        Change(path.relative_to(ROOT).as_posix(), source, edit, suites)
        for room, suites in ROOMS.items()
        for path in sorted((ROOT / room).rglob("*.py"))
        for source in [path.read_text()]
        for edit in edits(source)
    ]
    return [each for each in made if not parts or any(part in each.place for part in parts)]


def sample(some: list[Change], seed: int, minutes: float) -> Iterator[Mutation]:
    """Mutations in the order that a seed names, until the time is over."""
    ends_s = time.monotonic() + 60 * minutes
    for change in random.Random(seed).sample(some, len(some)):
        if time.monotonic() >= ends_s:
            return
        with contextlib.suppress(NoPlace):
            yield change.as_mutation()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations.sample", description=__doc__)
    parser.add_argument("part", nargs="*", help="part of a place")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--count", type=int, default=sys.maxsize)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    os.environ.setdefault("TESTS_PATIENCE", HANG)
    some = changes(options.part)
    print(f"seed {options.seed}: a sample of {len(some)} mutations", flush=True)
    chosen = itertools.islice(sample(some, options.seed, options.minutes), options.count)
    judged = uncaught = 0
    for mutation, is_caught, told in judge_all(chosen, options.workers):
        judged += 1
        uncaught += not is_caught
        print(told if is_caught else f"{told}\n{difference(mutation)}", flush=True)
    print(f"seed {options.seed}: {judged - uncaught} of {judged} caught")
    return 0


def difference(mutation: Mutation) -> str:
    """The change as a difference, each line marked."""
    gone = [f"    - {line}" for line in mutation.old.splitlines()]
    come = [f"    + {line}" for line in mutation.new.splitlines()]
    return "\n".join([*gone, *come])


if __name__ == "__main__":
    sys.exit(main())
