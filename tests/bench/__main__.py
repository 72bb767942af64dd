"""The command line of the benchmarks.

    python -m tests.bench NAME [NAME ...] [OPTIONS]       `poe bench` does the same

Prints a table for each benchmark, and writes the figures as JSON if asked to. Exit status: 0
measured; 1 something could not be measured; 2 the command line is wrong. A goal that is missed is
no failure: machines differ.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tests.bench.barrier import bench_barrier
from tests.bench.cluster import Amount, bench_cluster
from tests.bench.compare import Pairs, bench_compare
from tests.bench.embedded import bench_embedded
from tests.bench.figures import CannotMeasure, Figures, machine
from tests.bench.fleet import bench_fleet
from tests.bench.heartbeat import Load, bench_heartbeat
from tests.bench.kafka import bench_kafka
from tests.bench.log import bench_log
from tests.bench.messages import bench_messages
from tests.bench.planner import bench_planner
from tests.bench.protocols import bench_protocols
from tests.bench.purgatory import bench_purgatory
from tests.bench.report import print_tables, write_json
from tests.bench.session_members import bench_session_members
from tests.bench.timer import bench_timer

Options = argparse.Namespace


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks that are named; the exit status."""
    options = _parser().parse_args(arguments)
    results: dict[str, Figures] = {"machine": machine()}
    try:
        for name, (_, run) in BENCHMARKS.items():
            if name in options.names:
                results[name] = run(options)
        print_tables(results)
        if options.json is not None:
            write_json(results, options.json)
    except CannotMeasure as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:<10} {summary}" for name, (summary, _) in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="bench",
        usage="poe bench NAME [NAME ...] [OPTIONS]",
        description=f"Measure on this machine.\n\nbenchmarks:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("names", nargs="+", choices=BENCHMARKS, metavar="NAME", help="see above")
    add("--quick", action="store_true", help="a small form, which only shows that it works")
    add("--members", type=int, help="members; cluster: groups; spark: micro-batches")
    add("--seconds", type=float, default=15, help="of heartbeats (15)")
    add("--store", default="", help="log, cluster: etcd://…, zookeeper://… or postgresql://…")
    add("--against", type=Path, help="compare: other checkout of this project")
    add("--pairs", type=int, help="compare: 3 or more; 15")
    add("--json", type=Path, metavar="FILE", help="write the figures there too")
    return parser


def _heartbeat(options: Options) -> Figures:
    return bench_heartbeat(Load.quick() if options.quick else Load(seconds=options.seconds))


def _session_members(options: Options) -> Figures:
    size = (50, 1) if options.quick else (options.members or 2_000, options.seconds)
    return bench_session_members(*size)


def _fleet(options: Options) -> Figures:
    return bench_fleet(*((40, 1.0) if options.quick else (20_000, options.seconds)))


def _cluster(options: Options) -> Figures:
    if not options.store:
        raise CannotMeasure("cluster needs --store")
    amount = Amount.quick() if options.quick else Amount()
    return bench_cluster(options.store, options.members, amount)


def _compare(options: Options) -> Figures:
    if options.against is None:
        raise CannotMeasure("compare needs --against")
    most = Pairs.quick() if options.quick else Pairs()
    number = max(3, options.pairs or most.number)
    barriers = (options.members,) if options.members else most.barriers
    return bench_compare(options.against, replace(most, number=number, barriers=barriers))


def _spark(options: Options) -> Figures:
    try:
        from tests.bench.spark import bench_spark
    except ImportError as error:
        raise CannotMeasure(f"spark needs the extra `spark` ({error})") from None
    return bench_spark(options.members, quick=options.quick)


BENCHMARKS: dict[str, tuple[str, Callable[[Options], Figures]]] = {
    "timer": (
        "the timing wheel beside asyncio, a heap and a sorted list",
        lambda options: bench_timer(quick=options.quick),
    ),
    "purgatory": (
        "the published benchmark of Kafka's purgatory, on the wheel and its rivals",
        lambda options: bench_purgatory(quick=options.quick),
    ),
    "planner": (
        "plans of session groups, by members and partitions",
        lambda options: bench_planner(quick=options.quick),
    ),
    "log": (
        "appends to SQLite or --store, SyncGroup with and without a disk",
        lambda options: bench_log(options.store, quick=options.quick),
    ),
    "messages": (
        "the longest turn of the event loop for a large message of each RPC",
        lambda options: bench_messages(quick=options.quick),
    ),
    "heartbeat": ("CPU of a heartbeat, and members that one core keeps alive", _heartbeat),
    "kafka": (
        "CPU of a heartbeat over Kafka's wire, beside gRPC",
        lambda options: bench_kafka(quick=options.quick),
    ),
    "session-members": (
        "session members at rest, each with a connection of its own: CPU, memory",
        _session_members,
    ),
    "fleet": ("20,000 groups: memory, heartbeats", _fleet),
    "barrier": (
        "one large group, from the first join to the last assignment",
        lambda options: bench_barrier(100 if options.quick else options.members),
    ),
    "embedded": (
        "workers that run their node: start to the first handler, cost at rest (--store)",
        lambda options: bench_embedded(
            options.store, 1 if options.quick else options.seconds, quick=options.quick
        ),
    ),
    "protocols": (
        "how long partitions stand idle in classic and in session groups, on virtual time",
        lambda options: bench_protocols(quick=options.quick),
    ),
    "cluster": ("hand-overs, killed nodes and take-overs on a shared store (--store)", _cluster),
    "compare": (
        "CPU of heartbeats, barriers and members, of this checkout and of another (--against)",
        _compare,
    ),
    "spark": ("rows a second and micro-batches of Spark queries; needs Java 17", _spark),
}

if __name__ == "__main__":
    sys.exit(main())
