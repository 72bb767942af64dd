"""Break a deployment under the workers of a session group, and the workers; then check every claim.

    python -m tests.campaigns.faults.sessions [FAULTS] [etcd|zookeeper|sqlite] [SEED]

500 faults by default; the suite makes a few. With sqlite there is one coordinator, which is killed
and restarted. Exit status: 0 if every claim holds. The folder with the sink and the notes stays
behind if one does not.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from coordinator.operator.admin import GroupAdmin
from tests.bench.figures import percentile
from tests.campaigns.faults.deployment import Deployment
from tests.campaigns.faults.injections import KINDS
from tests.campaigns.faults.session_claims import (
    Note,
    longest_idle_s,
    moves,
    overlaps_in_time,
    problems,
    refused,
)
from tests.campaigns.faults.session_worker import CheckingSink, Program, notes_of
from tests.campaigns.faults.single import SingleNode
from tests.integration.waiting import until
from tests.kit.patience import HANG_S
from tests.kit.proxy import Tunnel

GROUP = "sessions"
WORKERS, PARTITIONS, LEASE_MS = 4, 12, 2_000
IDLE_S = LEASE_MS / 1_000 + 1
"""Longest time after the end of a fault for which a partition is not worked on."""
OFTEN = {
    "worker kills": 4,
    "worker stops": 4,
    "worker cuts": 3,
    "partitions": 2,
    "node kills": 2,
    "node stops": 1,
    "store kills": 2,
}
"""Relative frequency of each kind of fault."""
OFTEN_ALONE = {
    "worker kills": 3,
    "worker stops": 2,
    "worker cuts": 2,
    "node kills": 4,
    "node restarts": 2,
    "node stops": 1,
}
"""The same, for a coordinator that has no other beside it."""


@dataclass
class Campaign:
    """Workers, and how long each fault has kept partitions from being held.

    idle_times: longest idle time of a partition after each fault's end, in seconds.
    stopped: numbers of the processes that stood still for a while.
    """

    folder: Path
    deployment: Deployment | SingleNode
    dice: random.Random
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    wires: dict[int, Tunnel] = field(default_factory=dict)
    idle_times: list[tuple[str, float]] = field(default_factory=list)
    stopped: set[int] = field(default_factory=set)
    _notes: list[Note] = field(default_factory=list)
    _read_bytes: int = 0

    async def start(self) -> None:
        """Start a worker more, with a wire of its own."""
        wire = await Tunnel().__aenter__()
        worker = self._spawn({**os.environ, "COORDINATOR_CLIENT_PROXY": f"http://{wire.address}"})
        self.workers.append(worker)
        self.wires[worker.pid] = wire

    def _spawn(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        program = Program(
            ",".join(self.deployment.addresses), GROUP, str(self.folder), PARTITIONS, LEASE_MS
        )
        command = [
            sys.executable,
            "-m",
            "tests.campaigns.faults.session_worker",
            json.dumps(asdict(program)),
        ]
        with (self.folder / f"worker-{len(list(self.folder.iterdir()))}.log").open("w") as log:
            return subprocess.Popen(command, stderr=log, env=environment)

    async def kill(self, worker: subprocess.Popen[bytes]) -> None:
        """SIGKILL a worker."""
        self.workers.remove(worker)
        worker.kill()
        worker.wait()
        await self.wires.pop(worker.pid).__aexit__()

    async def stop(self) -> None:
        """Kill what is left."""
        for worker in list(self.workers):
            await self.kill(worker)

    def ended(self) -> list[str]:
        """Sentences about workers that have ended although nobody has killed them."""
        return [
            f"worker {worker.pid} has ended with status {worker.returncode}"
            for worker in self.workers
            if worker.poll() is not None
        ]

    def notes(self) -> list[Note]:
        """All notes so far: what is new is read, up to the last whole line."""
        file = notes_of(self.folder)
        if file.exists():
            with file.open("rb") as lines:
                lines.seek(self._read_bytes)
                new = lines.read()
            new = new[: new.rfind(b"\n") + 1]
            self._read_bytes += len(new)
            self._notes += map(json.loads, new.splitlines())
        return self._notes

    async def inflict(self, kind: str) -> str:
        """Have a fault happen, and end."""
        if not kind.startswith("worker"):
            return await KINDS[kind](self.deployment, self.dice)
        worker = self.dice.choice(self.workers)
        about_a_lease_s = LEASE_MS / 1_000 * (0.5 + 1.5 * self.dice.random())
        match kind:
            case "worker kills":
                await self.kill(worker)
                await self.start()
            case "worker stops":
                self.stopped.add(worker.pid)
                worker.send_signal(signal.SIGSTOP)
                await asyncio.sleep(about_a_lease_s)
                worker.send_signal(signal.SIGCONT)
            case "worker cuts":  # It works on, and has to find out by its own clock.
                wire = self.wires[worker.pid]
                await until(lambda: wire.is_used)  # A cut of what nobody uses is no fault.
                how = self.dice.choice(("both", "requests", "answers"))
                wire.requests_pass, wire.answers_pass = how == "answers", how == "requests"
                await asyncio.sleep(about_a_lease_s)
                wire.mend()
            case _:
                raise ValueError(kind)
        return f"worker {worker.pid}"

    async def held_again(self, fail_over_s: float = 0.0) -> float:
        """Wait until every partition is worked on; returns the longest idle time in seconds.

        Args:
            fail_over_s: a fail-over that the fault has called for may begin so late. Until then
                members work under the leases that they have.
        """
        known, since_s = len(self.notes()), time.monotonic()

        def idle_s(from_s: float) -> float | None:
            return longest_idle_s(self.notes()[known:], from_s, PARTITIONS)

        await asyncio.sleep(fail_over_s)
        settled_s = time.monotonic()
        await until(lambda: idle_s(settled_s) is not None, HANG_S)
        longest_s = idle_s(since_s)
        assert longest_s is not None
        return longest_s


async def run(folder: Path, store: str, plan: Sequence[str], seed: int) -> Campaign:
    """Inflict all faults of a plan, each once partitions are held again after the one before."""
    dice = random.Random(seed)
    async with SingleNode() if store == "sqlite" else Deployment(store) as deployment:
        campaign = Campaign(folder, deployment, dice)
        try:
            for _ in range(WORKERS):
                await campaign.start()
            await campaign.held_again()
            for number, kind in enumerate(plan, 1):
                began_s = time.monotonic()
                what = await campaign.inflict(kind)
                lasted_s = time.monotonic() - began_s
                fail_over_s = 0.0 if kind.startswith("worker") else deployment.fail_over_s
                idle_s = await campaign.held_again(fail_over_s)
                campaign.idle_times.append((kind, idle_s))
                assert not campaign.ended(), campaign.ended()
                outcome = (
                    f"{kind} ({what}) at {began_s:.1f} for {lasted_s:.1f} s, then {idle_s:.1f} s"
                )
                print(f"{number} of {len(plan)}: {outcome}", file=sys.stderr, flush=True)
        finally:
            await campaign.stop()
        with GroupAdmin(",".join(deployment.addresses)) as admin:
            offsets = await asyncio.to_thread(admin.offsets, GROUP)
        committed = {key.partition: offset for key, offset in offsets.items()}
    (folder / "committed.json").write_text(json.dumps(committed))
    return campaign


def verdict(campaign: Campaign) -> list[str]:
    """Sentences about the claims that do not hold."""
    committed = json.loads((campaign.folder / "committed.json").read_text())
    return list(
        problems(
            campaign.notes(),
            CheckingSink(str(campaign.folder)).effects(),
            {int(partition): offset for partition, offset in committed.items()},
        )
    )


def late(campaign: Campaign) -> list[str]:
    """Sentences about faults after which a partition stood idle for too long.

    On a machine that is busy with other work they say nothing about the coordinator.
    """
    return [
        f"a partition stood idle for {idle_s:.1f} s after {kind}, not for {IDLE_S:g} s at most"
        for kind, idle_s in campaign.idle_times
        if idle_s > IDLE_S
    ]


def planned(faults: int, store: str, dice: random.Random) -> list[str]:
    """A plan of so many faults."""
    often = OFTEN_ALONE if store == "sqlite" else OFTEN
    return dice.choices(list(often), list(often.values()), k=faults)


def report(campaign: Campaign) -> str:
    """Result of a campaign, as a table."""
    notes = campaign.notes()
    seconds = [idle_s for _, idle_s in campaign.idle_times]
    kinds = Counter(kind for kind, _ in campaign.idle_times)
    rows: list[tuple[str, float]] = [
        ("faults", len(seconds)),
        *((f"  {kind}", count) for kind, count in kinds.most_common()),
        ("grants that moved a partition", moves(notes)),
        ("effects taken by the checking sink", sum(note["op"] == "taken" for note in notes)),
        ("effects that it refused", refused(notes)),
        ("effects that the other sink has taken too late", overlaps_in_time(notes)),
        ("  of workers that never stood still", overlaps_in_time(notes, campaign.stopped)),
        ("commits acknowledged", sum(note["op"] == "committed" for note in notes)),
        ("longest idle time after a fault, median, s", percentile(seconds, 50)),
        ("longest idle time after a fault, longest, s", max(seconds, default=0.0)),
        (f"faults after which it was longer than {IDLE_S:g} s", len(late(campaign))),
        ("longest idle time of all, s", longest_idle_s(notes, notes[0]["at"], PARTITIONS) or 0.0),
    ]  # fmt: skip
    lines = [f"{name:52}{value:>12,.2f}" for name, value in rows]
    longest = sorted(campaign.idle_times, key=lambda each: -each[1])[:5]
    return "\n".join([*lines, *(f"{idle_s:8.1f} s after {kind}" for kind, idle_s in longest)])


def main() -> int:
    faults = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    store = sys.argv[2] if len(sys.argv) > 2 else "etcd"
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(10**6)
    folder = Path(tempfile.mkdtemp(prefix="sessions-"))
    plan = planned(faults, store, random.Random(seed))
    campaign = asyncio.run(run(folder, store, plan, seed))
    found = [*verdict(campaign), *late(campaign)]
    print(report(campaign), *found, f"{len(found)} problems, seed {seed}", sep="\n")
    if found:
        print(f"see {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
