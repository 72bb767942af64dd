"""The command line of the benchmarks; what they need is imported when one runs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from coordinator.cli.config import USAGE_ERROR


def add_bench_parser(commands: Any) -> None:  # Any: argparse's own has no public type.
    """`coordinator bench`."""
    bench = commands.add_parser("bench", help="measure", description="Measure.")
    bench.set_defaults(run=_bench)
    bench.add_argument(
        "what",
        choices=(
            "timer",
            "purgatory",
            "assign",
            "journal",
            "log",
            "messages",
            "heartbeat",
            "barrier",
            "fleet",
            "cores",
            "soak",
            "churn",
            "cluster",
            "compare",
            "spark",
            "all",
        ),
        help="all: those that need neither a --store nor Spark; soak: heartbeats for --seconds; "
        "churn: groups that come and go for --seconds; compare: heartbeats and barriers of this "
        "code and of the code --against, in alternating pairs",
    )
    bench.add_argument(
        "--members",
        type=int,
        help="members to run; log, cluster: groups; spark: batches; compare: of a barrier",
    )
    bench.add_argument(
        "--store", metavar="URL", help="for cluster: etcd://HOST:PORT,… or zookeeper://…"
    )
    bench.add_argument(
        "--against", type=Path, metavar="PATH", help="for compare: another checkout of this project"
    )
    bench.add_argument("--pairs", type=int, help="of compare, 3 at least; default: 15")
    bench.add_argument(
        "--requests", type=int, help="of each run of purgatory; as published: 1000000"
    )
    bench.add_argument("--seconds", type=float, default=15, help="how long heartbeats are sent")
    bench.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    bench.add_argument(
        "--pictures", type=Path, metavar="FOLDER", help="draw the figures there, as SVG and PNG"
    )
    bench.add_argument(
        "--quick", action="store_true", help="timer, purgatory, messages: in seconds, and rougher"
    )
    bench.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="PATH",
        help="heartbeat: further interpreters to serve with, which may have another gRPC",
    )


def _bench(options: argparse.Namespace) -> int:
    from tests.bench.run import Options, bench

    if options.what == "cluster" and options.store is None:
        print("coordinator: bench cluster needs --store", file=sys.stderr)
        return USAGE_ERROR
    if options.what == "compare" and options.against is None:
        print("coordinator: bench compare needs --against", file=sys.stderr)
        return USAGE_ERROR
    for name, least in (("requests", 1), ("pairs", 3), ("members", 1)):
        value = getattr(options, name)
        if value is not None and value < least:
            print(f"coordinator: --{name} must be at least {least}", file=sys.stderr)
            return USAGE_ERROR
    return bench(
        Options(
            what=options.what,
            members=options.members,
            seconds=options.seconds,
            store=options.store,
            json=options.json,
            pictures=options.pictures,
            quick=options.quick,
            pythons=tuple(options.python),
            requests=options.requests,
            against=options.against,
            pairs=options.pairs,
        )
    )
