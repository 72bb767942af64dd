"""A plain Python worker: the same loop as in a Spark task, in a process of its own.

SIGTERM ends it in good order: it leaves the group, and others go on at once.
"""

from __future__ import annotations

import argparse
import signal
import sys

from coordinator.client import BlockingMember
from coordinator.sources import FileLog, partitions_of
from coordinator.sources.group import consume
from flights.counting import Counting


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap", "group", "log", "topic", "results", "client-id"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--lease-ms", type=int, required=True)
    parser.add_argument("--rows-per-commit", type=int, required=True)
    parser.add_argument("--pause", type=float, required=True)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    source = FileLog(options.log, options.topic)
    with BlockingMember(
        options.bootstrap,
        options.group,
        {options.topic: len(partitions_of(source))},
        protocol="session",
        client_id=options.client_id,
        wishes={"lease_ms": options.lease_ms},
    ) as member:
        consume(
            member,
            source,
            Counting(options.results, options.client_id),
            rows_per_commit=options.rows_per_commit,
            pause_s=options.pause,
        )


if __name__ == "__main__":
    main()
