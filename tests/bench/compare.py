"""Two checkouts beside each other: what a heartbeat and a barrier cost the server of each, and what
a heartbeat, a commit and a hand-over cost its members.

What is compared of servers is `coordinator serve`, run from the code of each checkout. The
benchmark, its calls and the data folders that it fills are those of this checkout for both, so that
the other one may be older, and have other benchmarks or none. Members: `member_costs.py`.

Both are measured in one run, in pairs: one checkout and at once the other, the first of a pair
alternating. A pair gives a ratio, new in old; whatever slows the machine for longer than a pair
leaves it alone. The spread of the ratios says how far their median can be trusted: compare a
checkout with itself to see what the machine makes of nothing.
"""

from __future__ import annotations

import itertools
import statistics
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.bench import h2load
from tests.bench.barrier import form
from tests.bench.figures import ROUNDS, CannotMeasure, Figures, Goal
from tests.bench.heartbeat import A_PROCESS, messages, serving
from tests.bench.member_costs import FLAGS, PROTOCOLS, WORK, LostMember, MemberCosts
from tests.bench.servers import Usage, environment, scratch, with_server

OURS = Path(__file__).parents[2]
AT_MOST = 1.03
"""Highest acceptable ratio of CPU, new to old."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Size of a run.

    calls: of each half of a pair of heartbeats. barriers: members, of each barrier. commits,
    hand_overs: of each half of a pair of members; without commits these are not measured.
    """

    number: int = ROUNDS
    calls: int = 5_000
    barriers: tuple[int, ...] = (1_000, 3_000)
    commits: int = 1_000
    hand_overs: int = 10

    @classmethod
    def quick(cls) -> Pairs:
        """Seconds, not minutes: heartbeats alone."""
        return cls(number=3, calls=100, barriers=(), commits=0)


class LostMembers(CannotMeasure):
    """A barrier in which not everybody got a share: what it cost says nothing."""


class NotComparable(CannotMeasure):
    """A path is no checkout of this project. The message says so."""


def bench_compare(against: Path, pairs: Pairs) -> Figures:
    """CPU of server and members of this checkout in that of another one; all in one run.

    Raises:
        NotComparable: see there.
    """
    trees = {"old": against.resolve(), "new": OURS}
    for tree in trees.values():
        check(tree)
    figures: Figures = {"compared": "CPU of `coordinator serve`, and of members; driven by the new"}
    for name, tree in trees.items():
        figures |= {name: str(tree), f"{name}: commit": _commit(tree)}
    figures |= _heartbeats(trees, pairs)
    for members in pairs.barriers:
        figures |= _barriers(trees, pairs, members)
    return figures | (_members(trees, pairs) if pairs.commits else {})


def check(tree: Path) -> None:
    """See that Python runs the code of a checkout.

    Raises:
        NotComparable: it does not.
    """
    if not (tree / "coordinator" / "__main__.py").is_file():
        raise NotComparable(f"{tree} is no checkout of this project")
    question = "import coordinator, timer; print(coordinator.__file__); print(timer.__file__)"
    answer = subprocess.run(  # noqa: S603  # Our own program.
        [sys.executable, "-c", question],
        cwd=tree,
        env=environment(tree),
        capture_output=True,
        text=True,
        check=False,
    )
    files = [Path(line) for line in answer.stdout.splitlines()]
    if not files or not all(file.resolve().is_relative_to(tree) for file in files):
        raise NotComparable(f"Python does not run the code of {tree}: {answer.stderr[-500:]}")


def _commit(tree: Path) -> str:
    """Commit of a checkout, with `-dirty` if files were changed."""
    if not (tree / ".git").exists():
        return "not known: no git checkout"
    answer = subprocess.run(  # noqa: S603
        ["git", "-C", str(tree), "describe", "--always", "--dirty"],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() or "not known: git does not say"


def _heartbeats(trees: dict[str, Path], pairs: Pairs) -> Figures:
    """Calls as fast as they are answered, to servers that are there all the time."""
    if not h2load.is_installed():
        return {"heartbeats": "not measured: no h2load (Debian: nghttp2-client)"}
    figures: Figures = {}
    with scratch() as folder, ExitStack() as running:
        servers = {
            name: running.enter_context(serving(folder, number, tree=tree))
            for number, (name, tree) in enumerate(trees.items())
        }
        for (kind, message), what in zip(
            messages().items(), ("a heartbeat", f"a batch of {A_PROCESS}"), strict=True
        ):

            def cost(name: str) -> float:
                server = servers[name]
                usage = Usage(server.pid)
                h2load.send(server.address, kind, message, pairs.calls)  # noqa: B023  # Called here.
                return usage.us_each(pairs.calls)

            for name in servers:
                cost(name)  # Warm: connections, caches and pools are made once.
            figures |= spread(f"{what}, us", *in_pairs(cost, pairs.number))
    return figures


def _barriers(trees: dict[str, Path], pairs: Pairs, members: int) -> Figures:
    """A group that forms on a new server."""

    def cost(name: str) -> float:
        barrier, cost_us = form(members, two_phase=True, tree=trees[name])
        if barrier.failed:
            raise LostMembers(f"{barrier.failed} members of {members} got no share")
        return cost_us

    what = f"a barrier of {members:,}, us a member"
    return spread(what, *in_pairs(cost, pairs.number))


def _members(trees: dict[str, Path], pairs: Pairs) -> Figures:
    """Members at a server of this checkout, in both protocols."""
    figures: Figures = {}
    groups = itertools.count()

    def run(address: str, _: int) -> None:
        costs = MemberCosts(address, pairs.commits, pairs.hand_overs)
        for protocol in PROTOCOLS:
            halves: dict[str, list[dict[str, float]]] = {"old": [], "new": []}
            for number in range(pairs.number):
                for name in ("old", "new") if number % 2 == 0 else ("new", "old"):
                    group = f"{protocol}-{next(groups)}"
                    try:
                        cost = costs.measure(trees[name], protocol, group)
                    except LostMember:  # The machine stood still for longer than a lease.
                        cost = costs.measure(trees[name], protocol, f"{group}-again")
                    halves[name].append(cost)
            for work in WORK:
                old, new = ([half[work] for half in halves[name]] for name in ("old", "new"))
                figures.update(spread(f"{work} in a {protocol} member, us", old, new))

    with_server(run, *FLAGS)
    return figures


def in_pairs(cost: Callable[[str], float], number: int) -> tuple[list[float], list[float], int]:
    """Costs of old and new, in pairs that begin with either in turn; and the number of pairs that
    were lost and measured again.

    Raises:
        LostMembers: as many pairs were lost as were asked for.
    """
    pairs: list[dict[str, float]] = []
    lost = 0
    while len(pairs) < number:
        first_is_old = (len(pairs) + lost) % 2 == 0
        try:
            pairs.append(
                {name: cost(name) for name in (("old", "new") if first_is_old else ("new", "old"))}
            )
        except LostMembers:
            lost += 1
            if lost == number:
                raise
    return [pair["old"] for pair in pairs], [pair["new"] for pair in pairs], lost


def spread(what: str, old: list[float], new: list[float], lost: int = 0) -> Figures:
    """The medians of both, and of the ratios of the pairs the median and the spread."""
    ratios = sorted(after / before for before, after in zip(old, new, strict=True))
    lower, median, upper = statistics.quantiles(ratios, n=4, method="inclusive")
    return {
        f"{what}: old": statistics.median(old),
        f"{what}: new": statistics.median(new),
        f"{what}: new in old, median": Goal(median, at_most=AT_MOST),
        f"{what}: new in old, lowest": ratios[0],
        f"{what}: new in old, lower quartile": lower,
        f"{what}: new in old, upper quartile": upper,
        f"{what}: new in old, highest": ratios[-1],
        f"{what}: pairs": len(ratios),
        f"{what}: pairs that lost members, measured again": lost,
    }
