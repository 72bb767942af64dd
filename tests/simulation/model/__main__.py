"""Search all orders of events for a violation.

    python -m tests.simulation.model sessions --members 2 --partitions 2 --depth 6
    python -m tests.simulation.model classic --members 2 --depth 8 --seconds 600

Prints how many states were visited and to which depth, and of each kind of violation a shortest
path as a transcript. Exit status: 0 if there was none.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import partial

from tests.simulation.model.classic import ClassicSpace
from tests.simulation.model.search import Found, search, transcript
from tests.simulation.model.sessions import SessionSpace


def main() -> int:
    """Search, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.model", description=__doc__)
    parser.add_argument("protocol", choices=("sessions", "classic"))
    parser.add_argument("--members", type=int, default=2)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--mode", choices=("simple", "warm", "copy"), default="simple")
    parser.add_argument("--faults", type=int, default=2, help="on one path at most")
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--heal-every", type=int, default=16, help="heal one state in so many")
    parser.add_argument("--violations", type=int, default=5, help="kinds after which it stops")
    options = parser.parse_args()
    if options.protocol == "sessions":
        begin = partial(
            SessionSpace,
            members=options.members,
            partitions=options.partitions,
            mode=options.mode,
            faults=options.faults,
        )
    else:
        begin = partial(ClassicSpace, members=options.members, faults=options.faults)
    began = time.monotonic()
    result = search(
        begin,
        depth=options.depth,
        seconds=options.seconds,
        heal_every=options.heal_every,
        most_violations=options.violations,
    )
    _print(result, time.monotonic() - began)
    for path in result.violations.values():
        print("\n".join(["", *transcript(begin, path)]))
    return bool(result.violations)


def _print(found: Found, seconds: float) -> None:
    print(
        f"{found.states} states, {found.transitions} transitions, all paths to depth "
        f"{found.depth}, {found.healed} states healed, {seconds:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
