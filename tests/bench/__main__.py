"""The command line of the benchmarks.

    python -m tests.bench NAME [NAME ...] [OPTIONS]       `poe bench` does the same

Prints a table for each benchmark, writes the figures as JSON and draws them if asked to. Exit
status: 0 measured; 1 something could not be measured; 2 the command line is wrong. A goal that is
missed is no failure: machines differ.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.assign import bench_assign
from tests.bench.barrier import bench_barrier
from tests.bench.churn import bench_churn
from tests.bench.cluster import Amount, bench_cluster
from tests.bench.command_start import ROUNDS as START_ROUNDS
from tests.bench.command_start import bench_command_start
from tests.bench.compare import Pairs, bench_compare
from tests.bench.connections import REST_S, bench_connections
from tests.bench.cores import bench_cores
from tests.bench.elections import bench_elections
from tests.bench.figures import CannotMeasure, Figures, machine
from tests.bench.fleet import bench_fleet
from tests.bench.heartbeat import (
    BATCHED_MEMBERS,
    UNARY_MEMBERS,
    Load,
    bench_heartbeat,
    bench_soak,
)
from tests.bench.imports import ROUNDS as IMPORT_ROUNDS
from tests.bench.imports import bench_imports
from tests.bench.journal import bench_journal
from tests.bench.log import bench_log
from tests.bench.messages import bench_messages
from tests.bench.outages import bench_outages
from tests.bench.planner import bench_planner
from tests.bench.purgatory import bench_purgatory
from tests.bench.report import Picture, Report, draw, print_tables, write_json
from tests.bench.rolling import Size, bench_rolling
from tests.bench.session_members import bench_session_members
from tests.bench.session_plans import bench_session_plans
from tests.bench.sessions import Size as SessionsSize
from tests.bench.sessions import bench_sessions
from tests.bench.timer import bench_timer


@dataclass(slots=True)
class Options:
    """The command line; argparse fills it, and the defaults are here."""

    names: list[str] = field(default_factory=list)
    quick: bool = False
    members: int | None = None
    seconds: float = 15
    requests: int | None = None
    store: str = ""
    against: Path | None = None
    pairs: int | None = None
    pythons: list[str] = field(default_factory=list)
    kafka: bool = False
    json: Path | None = None
    pictures: Path | None = None


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark by what it measures.

    needs: an option without which it cannot run. is_of_all: the name `all` includes it.
    """

    summary: str
    run: Callable[[Options], Figures | Report]
    needs: str = ""
    is_of_all: bool = True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks that are named; the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments, namespace=Options())
    names = [
        name
        for name, benchmark in BENCHMARKS.items()
        if name in options.names or ("all" in options.names and benchmark.is_of_all)
    ]
    for name in names:
        needs = BENCHMARKS[name].needs
        if needs and not getattr(options, needs):
            parser.error(f"{name} needs --{needs}")
    results: dict[str, Figures] = {"machine": machine()}
    pictures: list[Picture] = []
    try:
        for name in names:
            found = BENCHMARKS[name].run(options)
            report = found if isinstance(found, Report) else Report(found)
            results[name] = report.figures
            pictures += report.pictures
        print_tables(results)
        if options.json is not None:
            write_json(results, options.json, pictures)
        if options.pictures is not None:
            for path in draw(pictures, options.pictures):
                print(f"drawn: {path}")
    except CannotMeasure as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:<10} {each.summary}" for name, each in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="bench",
        usage="poe bench NAME [NAME ...] [OPTIONS]",
        description=f"Measure on this machine.\n\nbenchmarks:\n{listed}\n"
        f"  {'all':<10} those that need no option and take minutes at most",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="+", choices=(*BENCHMARKS, "all"), metavar="NAME", help="see above"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a small form, which only shows that it works"
    )
    parser.add_argument(
        "--members",
        type=_number(1),
        help="members to run; connections: connections; log, cluster: groups; spark: "
        "micro-batches; compare: members of a barrier",
    )
    parser.add_argument(
        "--seconds", type=float, help="duration of heartbeats, soak and churn; default: 15"
    )
    parser.add_argument(
        "--requests", type=_number(1), help="requests per run of purgatory; as published: 1000000"
    )
    parser.add_argument(
        "--store",
        metavar="URL",
        help="shared store of cluster: etcd://HOST:PORT,… or zookeeper://…",
    )
    parser.add_argument(
        "--against", type=Path, metavar="PATH", help="other checkout of this project, for compare"
    )
    parser.add_argument("--pairs", type=_number(3), help="pairs of compare; default: 15")
    parser.add_argument(
        "--python",
        dest="pythons",
        action="append",
        metavar="PATH",
        help="heartbeat: another interpreter to serve with, perhaps with another gRPC; repeatable",
    )
    parser.add_argument(
        "--kafka", action="store_true", help="heartbeat: over Kafka's wire, beside gRPC"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument(
        "--pictures", type=Path, metavar="FOLDER", help="draw the figures there, as SVG and PNG"
    )
    return parser


def _number(least: int) -> Callable[[str], int]:
    """A whole number that is large enough."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}")
        return value

    return number


# --- The benchmarks -----------------------------------------------------------------------------


def _heartbeat(options: Options) -> Figures:
    if options.kafka:
        from tests.bench import kafka

        members = options.members or kafka.MEMBERS
        most = kafka.Load(members=members, seconds=options.seconds)
        return kafka.bench_kafka(kafka.Load.quick() if options.quick else most)
    load = Load(
        members=options.members or UNARY_MEMBERS,
        batched=options.members or BATCHED_MEMBERS,
        seconds=options.seconds,
    )
    return bench_heartbeat(Load.quick() if options.quick else load, options.pythons)


def _compare(options: Options) -> Figures:
    most = Pairs.quick() if options.quick else Pairs()
    pairs = Pairs(
        number=options.pairs or most.number,
        calls=most.calls,
        barriers=(options.members,) if options.members else most.barriers,
    )
    assert options.against is not None
    return bench_compare(options.against, pairs)


def _spark(options: Options) -> Figures:
    try:
        from tests.bench.spark import bench_spark
    except ImportError as error:
        raise _needs_spark(error) from None
    return bench_spark(options.members, quick=options.quick)


def _spark_reads(options: Options) -> Figures:
    try:
        from tests.bench.spark_reads import bench_spark_reads
    except ImportError as error:
        raise _needs_spark(error) from None
    return bench_spark_reads(quick=options.quick)


def _needs_spark(error: ImportError) -> CannotMeasure:
    return CannotMeasure(f"spark needs the extra: consumer-group-coordinator[spark] ({error})")


BENCHMARKS = {
    "timer": Benchmark(
        "the timing wheel beside asyncio, a heap and a sorted list",
        lambda options: bench_timer(quick=options.quick),
    ),
    "purgatory": Benchmark(
        "the published benchmark of Kafka's purgatory, on the wheel and its rivals",
        lambda options: bench_purgatory(quick=options.quick, requests=options.requests),
    ),
    "assign": Benchmark(
        "assignors, by members, topics and partitions",
        lambda options: bench_assign(quick=options.quick),
    ),
    "planner": Benchmark(
        "plans of session groups, by members and partitions",
        lambda options: bench_planner(quick=options.quick),
    ),
    "journal": Benchmark("rebalances with the journal and without", lambda _: bench_journal()),
    "log": Benchmark(
        "appends to SQLite, SyncGroup with and without a disk, the load of a large store",
        lambda options: bench_log(options.members, quick=options.quick),
    ),
    "messages": Benchmark(
        "the longest turn of the event loop for a large message of each RPC",
        lambda options: bench_messages(quick=options.quick),
    ),
    "imports": Benchmark(
        "importing the member library beside `import grpc`, in fresh processes",
        lambda options: bench_imports(3 if options.quick else IMPORT_ROUNDS),
    ),
    "start": Benchmark(
        'help, version and completion of the command beside `python -c "import argparse"`',
        lambda options: bench_command_start(3 if options.quick else START_ROUNDS),
    ),
    "heartbeat": Benchmark("CPU of a heartbeat, and members that one core keeps alive", _heartbeat),
    "fleet": Benchmark(
        "20,000 groups: memory, heartbeats, restarts of server and members",
        lambda options: bench_fleet(*((40, 1.0) if options.quick else (20_000, options.seconds))),
    ),
    "connections": Benchmark(
        "8,000 idle connections of Kafka clients at a node that is then full: memory, CPU",
        lambda options: bench_connections(
            *((50, 0.5) if options.quick else (options.members, REST_S))
        ),
        is_of_all=False,
    ),
    "session-members": Benchmark(
        "--members session members at rest, each with a connection of its own: CPU, memory",
        lambda options: bench_session_members(
            *((50, 1) if options.quick else (options.members or 2_000, options.seconds))
        ),
        is_of_all=False,
    ),
    "session-plans": Benchmark(
        "heartbeats of others while a group of --members is planned, over the wire",
        lambda options: bench_session_plans(50 if options.quick else (options.members or 5_000)),
        is_of_all=False,
    ),
    "cores": Benchmark(
        "two nodes on two cores beside one",
        lambda options: bench_cores(*((300, 1) if options.quick else ())),
    ),
    "barrier": Benchmark(
        "one large group, from the first join to the last assignment",
        lambda options: bench_barrier(100 if options.quick else options.members),
    ),
    "soak": Benchmark(
        "heartbeats for --seconds",
        lambda options: bench_soak(
            40 if options.quick else options.members or UNARY_MEMBERS,
            1.0 if options.quick else options.seconds,
        ),
        is_of_all=False,
    ),
    "rolling": Benchmark(
        "a rolling restart of six workers: the longest rest of a partition; four minutes",
        lambda options: bench_rolling(Size.quick() if options.quick else Size()),
        is_of_all=False,
    ),
    "sessions": Benchmark(
        "a worker joins, leaves, is killed, and the coordinator is: the rest of partitions in "
        "classic groups and in one of sessions; ten minutes",
        lambda options: bench_sessions(SessionsSize.quick() if options.quick else SessionsSize()),
        is_of_all=False,
    ),
    "churn": Benchmark(
        "memory of a server whose groups come and go for --seconds",
        lambda options: bench_churn(2.0 if options.quick else options.seconds),
        is_of_all=False,
    ),
    "cluster": Benchmark(
        "appends, hand-overs, killed nodes and take-overs on a shared store (--store)",
        lambda options: bench_cluster(
            options.store, options.members, Amount.quick() if options.quick else Amount()
        ),
        needs="store",
        is_of_all=False,
    ),
    "outages": Benchmark(
        "time without answers when servers of etcd die; starts its own",
        lambda options: bench_outages(*((1,) if options.quick else ())),
        is_of_all=False,
    ),
    "elections": Benchmark(
        "ElectLeaders beside 16 members, on etcd and on ZooKeeper; starts its own",
        lambda options: bench_elections(*((2,) if options.quick else ())),
        is_of_all=False,
    ),
    "compare": Benchmark(
        "CPU of heartbeats and barriers, of this checkout and of another (--against)",
        _compare,
        needs="against",
        is_of_all=False,
    ),
    "spark": Benchmark(
        "rows a second and micro-batches of Spark queries; needs Java 17", _spark, is_of_all=False
    ),
    "spark-reads": Benchmark(
        "CPU of Spark's reads beside its own reader of Parquet; needs Java 17",
        _spark_reads,
        is_of_all=False,
    ),
}

if __name__ == "__main__":
    sys.exit(main())
