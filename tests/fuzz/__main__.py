"""Fuzz the decoders.

    python -m tests.fuzz run --executions 1000000 [--target X] [--record FILE] [--found FOLDER]
    python -m tests.fuzz replay X FILE      one input, with its traceback

With atheris (the extra `fuzz`) it is guided by coverage, else blind. Exit status: 0 if nothing
broke.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def main() -> int:
    if sys.argv[1:2] == ["drive"]:
        return _drive(sys.argv[2], sys.argv[3:])
    from tests.fuzz import campaign
    from tests.fuzz.targets import SHARES, load

    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--executions", type=int, default=100_000)
    run.add_argument("--target", action="append", choices=SHARES)
    run.add_argument("--record", type=Path)
    run.add_argument("--found", type=Path)
    run.add_argument("--seed", type=int, default=1)
    once = commands.add_parser("replay")
    once.add_argument("target", choices=SHARES)
    once.add_argument("file", type=Path)
    options = parser.parse_args()
    if options.command == "replay":
        load(options.target).target(options.file.read_bytes())
        return 0
    names = options.target or list(SHARES)
    ok = campaign.run(names, options.executions, options.seed, options.record, options.found)
    return 0 if ok else 1


def _drive(name: str, arguments: list[str]) -> int:
    """The process that `campaign.run_target` starts."""
    from tests.fuzz import engines

    if engines.has_atheris():
        engines.run_atheris(name, arguments)
    executions, seed, folder = arguments
    engines.run_mutator(name, int(executions), int(seed), Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
