"""Play worlds: `python -m tests.simulation.worlds --seed 7 --verbose`, or `--seeds 0-1999`.

Exit status: 0 if every claim holds in each of them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tests.simulation.worlds.campaign import Findings, play_many
from tests.simulation.worlds.world import World


def main(arguments: Sequence[str] | None = None) -> int:
    """Play what the command line asks for."""
    parser = argparse.ArgumentParser(prog="poe sim", description="Play simulated worlds.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, metavar="N", help="one world")
    which.add_argument("--seeds", type=_range, metavar="A-B", help="many, in parallel")
    parser.add_argument(
        "--verbose", action="store_true", help="print the transcript of the world (with --seed)"
    )
    parser.add_argument(
        "--counts", action="store_true", help="count what ran: requests, faults, answers"
    )
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="processes; a core each")
    parser.add_argument(
        "--sessions", action="store_true", help="worlds of session groups, not of classic ones"
    )
    options = parser.parse_args(arguments)
    if options.seed is not None:
        outcome = World(options.seed, is_told=options.verbose, has_sessions=options.sessions).run()
        for line in outcome.lines:
            print(line)
        problems = {outcome.seed: outcome.problems} if outcome.problems else {}
        found = Findings(problems, outcome.counts, 1)
        _tell(found)
    else:
        found = Findings()
        for part in play_many(options.seeds, jobs=options.jobs, has_sessions=options.sessions):
            _tell(part)
            found.add(part)
    if options.counts:
        for what, count in sorted(found.counts.items()):
            print(f"{count:9}  {what}")
    print(f"{found.worlds} worlds, {len(found.problems)} of them broke a claim")
    return 1 if found.problems else 0


def _tell(found: Findings) -> None:
    for seed, problems in found.problems.items():
        for problem in problems:
            print(f"seed {seed}: {problem}", flush=True)


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    try:
        return range(int(first), int(last) + 1)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not A-B") from None


if __name__ == "__main__":
    sys.exit(main())
