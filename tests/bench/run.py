"""One benchmark or all of them, printed, written and drawn."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.bench.assign import bench_assign
from tests.bench.barrier import bench_barrier
from tests.bench.churn import bench_churn
from tests.bench.cluster import bench_cluster
from tests.bench.compare import LostMembers, NotComparable, Pairs, bench_compare
from tests.bench.cores import bench_cores
from tests.bench.figures import Figures, machine
from tests.bench.fleet import bench_fleet
from tests.bench.heartbeat import (
    BATCHED_MEMBERS,
    UNARY_MEMBERS,
    Load,
    bench_heartbeat,
    bench_soak,
)
from tests.bench.journal import bench_journal
from tests.bench.log import bench_log
from tests.bench.messages import bench_messages
from tests.bench.purgatory import bench_purgatory
from tests.bench.report import Picture, Report, draw, print_tables, write_json
from tests.bench.timer import bench_timer


@dataclass(frozen=True, slots=True)
class Options:
    """What to measure, how much of it, and where to put it; see `coordinator bench --help`."""

    what: str
    members: int | None = None
    seconds: float = 15
    store: str | None = None
    json: Path | None = None
    pictures: Path | None = None
    quick: bool = False
    requests: int | None = None
    pythons: tuple[str, ...] = ()
    against: Path | None = None
    pairs: int | None = None


def bench(options: Options) -> int:
    """Run one benchmark, or all that need nothing else.

    Returns:
        The exit status: 1 if the pictures asked for cannot be drawn or there is nothing to compare
        with, else 0. A goal that is
        missed is no failure: machines differ.
    """
    results: dict[str, Figures] = {"machine": machine()}
    pictures: list[Picture] = []
    for name, run in _benchmarks(options).items():
        if options.what in (name, "all"):
            try:
                found = run()
            except (NotComparable, LostMembers) as error:
                print(f"coordinator: {error}", file=sys.stderr)
                return 1
            report = found if isinstance(found, Report) else Report(found)
            results[name] = report.figures
            pictures += report.pictures
    print_tables(results)
    if options.json is not None:
        write_json(results, options.json, pictures)
    if options.pictures is not None:
        try:
            for path in draw(pictures, options.pictures):
                print(f"drawn: {path}")
        except LookupError as error:
            print(f"coordinator: {error}", file=sys.stderr)
            return 1
    return 0


def _benchmarks(options: Options) -> dict[str, Callable[[], Figures | Report]]:
    members = options.members
    benchmarks: dict[str, Callable[[], Figures | Report]] = {
        "timer": lambda: bench_timer(quick=options.quick),
        "purgatory": lambda: bench_purgatory(quick=options.quick, requests=options.requests),
        "assign": bench_assign,
        "journal": bench_journal,
        "log": lambda: bench_log(members),
        "messages": lambda: bench_messages(quick=options.quick),
        "heartbeat": lambda: bench_heartbeat(_load(options), options.pythons),
        "fleet": lambda: bench_fleet(*((40, 1.0) if options.quick else (20_000, options.seconds))),
        "cores": lambda: bench_cores(*((300, 1) if options.quick else ())),
        "barrier": lambda: bench_barrier(100 if options.quick else members),
    }
    if options.store is not None:
        store = options.store
        benchmarks["cluster"] = lambda: bench_cluster(store, members)
    if options.against is not None:
        against = options.against
        benchmarks["compare"] = lambda: bench_compare(against, _pairs(options))
    if options.what == "soak":  # As long as one likes: not one of all.
        benchmarks["soak"] = lambda: bench_soak(members or UNARY_MEMBERS, options.seconds)
    if options.what == "churn":
        benchmarks["churn"] = lambda: bench_churn(2.0 if options.quick else options.seconds)
    if options.what == "spark":  # Takes minutes, and an extra: not one of all.
        benchmarks["spark"] = lambda: _bench_spark(members)
    return benchmarks


def _load(options: Options) -> Load:
    if options.quick:
        return Load.quick()
    return Load(
        members=options.members or UNARY_MEMBERS,
        batched=options.members or BATCHED_MEMBERS,
        seconds=options.seconds,
    )


def _pairs(options: Options) -> Pairs:
    most = Pairs.quick() if options.quick else Pairs()
    return Pairs(
        number=options.pairs or most.number,
        calls=most.calls,
        barriers=(options.members,) if options.members else most.barriers,
    )


def _bench_spark(batches: int | None) -> Figures:
    from tests.bench.spark import bench_spark

    return bench_spark(batches)
