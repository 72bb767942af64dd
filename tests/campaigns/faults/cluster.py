"""Break a deployment in every way, again and again, under load; then check every claim.

    python -m tests.campaigns.faults.cluster [ci|full|long] [etcd|zookeeper|postgresql] [SEED]

The suite runs `ci`, a tenth of `full`, in which everything that can break does so at least once
on one of the stores.

Exit status: 0 if every claim holds. History and dump stay behind if one does not.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.campaigns.faults.deployment import Deployment
from tests.campaigns.faults.fleet import Fleet
from tests.campaigns.faults.injections import KINDS
from tests.campaigns.faults.kill import check, write_history
from tests.integration.waiting import until
from tests.kit.patience import HANG_S

RECOVERY_S = 0.6
COMMITS = 20
"""Fewest commits acknowledged between two faults, for the claims are about work that is done. On a
slow machine the next fault waits for them."""
READ_BACK_EVERY = 10


@dataclass(frozen=True)
class Profile:
    """Number of faults, and the load."""

    faults: dict[str, int]
    quiet: int
    busy: int
    members: int
    pause_s: float


def _profile(part: float, *, has_majority: bool = True) -> Profile:
    """A part of the full profile, whose faults are divided between the stores.

    `has_majority`: the store has several servers, most of which can be lost.
    """
    whole = {"node kills": 50, "node stops": 20, "store kills": 20, "partitions": 10}
    faults = {name: round(count * part) for name, count in whole.items()}
    more = {
        "node restarts": 4,
        "store majority kills": 2,
        "store majority losses": 2,
        "store stops": 3,
        "controllers deposed": 3,
        "controllers restarted": 3,
    }
    faults |= {name: n for name, n in more.items() if has_majority or "majority" not in name}
    return Profile(faults, quiet=30, busy=20, members=3, pause_s=0.3)


def _ci(**faults: int) -> Profile:
    named = {name.replace("_", " "): count for name, count in faults.items()}
    return Profile(named, quiet=15, busy=10, members=3, pause_s=0.3)


PROFILES = {
    # Together a tenth of the full ones, and each rarer kind once.
    ("ci", "etcd"): _ci(
        node_kills=3,
        node_stops=1,
        store_kills=1,
        partitions=1,
        node_restarts=1,
        controllers_deposed=1,
        store_majority_kills=1,
    ),
    ("ci", "zookeeper"): _ci(
        node_kills=2,
        node_stops=1,
        store_kills=1,
        controllers_deposed=1,
        controllers_restarted=1,
        store_majority_losses=1,
        store_stops=1,
    ),
    # One server, so there is no majority.
    ("ci", "postgresql"): _ci(
        node_kills=2,
        node_stops=2,
        store_kills=2,
        partitions=2,
        node_restarts=1,
        controllers_deposed=1,
        controllers_restarted=1,
        store_stops=1,
    ),
    ("full", "postgresql"): _profile(0.5, has_majority=False),
    ("full", "etcd"): _profile(0.7),
    ("full", "zookeeper"): _profile(0.3),
    **{
        ("long", store): Profile(
            {
                "node kills": 1_000,
                "node stops": 300,
                "store kills": 200,
                "partitions": 100,
                "node restarts": 50,
                "store majority kills": 20,
                "store majority losses": 20,
                "store stops": 50,
                "controllers deposed": 50,
                "controllers restarted": 50,
            },
            quiet=120,
            busy=80,
            members=5,
            pause_s=2.0,
        )
        for store in ("etcd", "zookeeper")
    },
}


async def break_again_and_again(
    folder: Path, store: str, profile: Profile, seed: int
) -> tuple[Path, Path]:
    """The history of the clients, and the dump of what is left, as files in the folder."""
    dice = random.Random(seed)
    plan = [name for name, count in profile.faults.items() for _ in range(count)]
    dice.shuffle(plan)
    history, dump = folder / "history.jsonl", folder / "dump.jsonl"
    async with Deployment(store) as deployment:
        async with Fleet(
            deployment.addresses,
            dice,
            quiet=profile.quiet,
            busy=profile.busy,
            members=profile.members,
            quiet_session_ms=20_000,
            busy_session_ms=1_500,
            pause_s=profile.pause_s,
            patience_s=1.5,
        ) as fleet:
            await fleet.settle()
            for number, name in enumerate(plan, 1):
                began = time.monotonic()
                what = await KINDS[name](deployment, dice)
                ended = time.monotonic()
                fleet.history.append(
                    {"op": "fault", "fault": name, "what": what, "began": began, "ended": ended}
                )
                await asyncio.sleep(RECOVERY_S * 2 * dice.random())
                await until(lambda n=number: fleet.answered["committed"] >= COMMITS * n, HANG_S)
                if number % READ_BACK_EVERY == 0:
                    await fleet.read_back()
                    print(f"{number} of {len(plan)}", file=sys.stderr, flush=True)
            await fleet.recover()
            await fleet.read_back()
        fleet.history.append({"op": "ended", "takeovers": await deployment.takeovers()})
        await asyncio.to_thread(write_history, history, fleet.history)
        await asyncio.to_thread(deployment.dump, dump)
    return history, dump


def report(profile: Profile, history: Path, problems: str) -> str:
    """Faults and their outcome, as a table."""
    lines = [json.loads(line) for line in history.read_text().splitlines()]
    counts = Counter(line.partition(":")[0] for line in problems.splitlines())
    good = [x for x in lines if x["op"] in ("joined", "assigned") or x.get("answer") == "NONE"]
    rows = [
        *((name, count) for name, count in profile.faults.items()),
        ("calls acknowledged", len(good)),
        ("losses", counts["acknowledged_is_durable"] + counts["offsets_never_go_back"]),
        ("zombie writes accepted", counts["one_epoch_a_range"]),
        ("double owners", counts["one_owner"] + counts["generations_never_fall"]),
        ("needless rebalances", counts["no_needless_rebalance"]),
    ]
    table = [f"{name:40}{value:>12,}" for name, value in rows]
    table.append("longest times a group at rest was not answered, and what went on:")
    for seconds, names in longest_gaps(lines):
        table.append(f"{seconds:8.1f} s  {', '.join(names)}")
    return "\n".join(table)


def done(history: Path) -> tuple[Counter[str], int]:
    """The faults there were, by kind, and how often a shard was taken over."""
    lines = [json.loads(line) for line in history.read_text().splitlines()]
    faults = Counter(line["fault"] for line in lines if line["op"] == "fault")
    (takeovers,) = (line["takeovers"] for line in lines if line["op"] == "ended")
    return faults, takeovers


def longest_gaps(lines: list[dict]) -> list[tuple[float, list[str]]]:
    """Seconds between two good answers to members of one group at rest, with the faults then."""
    quiet = {x["group"]: x["since"] for x in lines if x["op"] == "quiet"}
    faults = [x for x in lines if x["op"] == "fault"]
    last: dict[str, float] = {}
    gaps: dict[tuple[str, ...], float] = {}
    answered = (x for x in lines if x.get("answer") == "NONE" and x["group"] in quiet)
    for line in sorted(answered, key=lambda x: x["ended"]):
        if line["began"] >= quiet[line["group"]]:
            since = last.get(line["group"], line["ended"])
            last[line["group"]] = line["ended"]
            during = tuple(
                f"{x['fault']} ({x['what']}, {x['ended'] - x['began']:.1f} s)"
                for x in faults
                if x["began"] < line["ended"] and x["ended"] > since
            )
            gaps[during] = max(gaps.get(during, 0.0), line["ended"] - since)
    return [
        (seconds, list(names)) for names, seconds in sorted(gaps.items(), key=lambda x: -x[1])[:8]
    ]


def main() -> int:
    size = sys.argv[1] if len(sys.argv) > 1 else "ci"
    store = sys.argv[2] if len(sys.argv) > 2 else "etcd"
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(10**6)
    profile = PROFILES[size, store]
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    began = time.monotonic()
    history, dump = asyncio.run(break_again_and_again(folder, store, profile, seed))
    verdict = check(history, dump)
    print(verdict.stdout, verdict.stderr, sep="")
    print(report(profile, history, verdict.stdout))
    print(f"{store}, seed {seed}, {time.monotonic() - began:.0f} s")
    if verdict.returncode:
        print(f"see {folder}")
    else:
        shutil.rmtree(folder)
    return verdict.returncode


if __name__ == "__main__":
    sys.exit(main())
