"""The member in TypeScript of deploy/examples, in one group with members in Python."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from coordinator.assignors import ClusterView, Subscription, TopicPartition, by_name
from coordinator.assignors.consumer_protocol import (
    Assignment,
    decode_subscription,
    encode_assignment,
)
from coordinator.client import GroupMember
from coordinator.core.events import MemberEvicted, MemberLeft
from tests.integration.waiting import until
from tests.serving import Process, free_port, running

ROOT = Path(__file__).parents[2]
EXAMPLE = Path("deploy/examples/typescript")
NODE_MINIMUM = 18
NO_REGISTRY = r"\b(?:EAI_AGAIN|ECONNREFUSED|ECONNRESET|ENETUNREACH|ENOTFOUND|ETIMEDOUT)\b"
PARTITIONS = 6
EVERYTHING = {TopicPartition("rows", number) for number in range(PARTITIONS)}
SESSION_MS = 6_000


def missing() -> str | None:
    """Reason for which the example cannot be built here; None if it can."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True)
    if int(version.stdout.lstrip("v").split(".")[0]) < NODE_MINIMUM:
        return f"Node {version.stdout.strip()} found; {NODE_MINIMUM} or newer is needed"
    return None


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The example, installed and compiled in a copy that holds nothing else but the contract."""
    if reason := missing():
        pytest.skip(reason)
    copy = tmp_path_factory.mktemp("typescript")
    leftovers = shutil.ignore_patterns("node_modules", "dist", "generated")
    shutil.copytree(ROOT / "protos", copy / "protos")
    shutil.copytree(ROOT / EXAMPLE, copy / EXAMPLE, ignore=leftovers)

    def npm(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["npm", *arguments]
        return subprocess.run(
            command, cwd=copy / EXAMPLE, capture_output=True, text=True, check=False
        )

    installed = npm("ci", "--no-audit", "--no-fund", "--fetch-retries=1")
    if unreachable := re.search(NO_REGISTRY, installed.stderr):
        pytest.skip(f"no npm registry can be reached: {unreachable.group()}")
    assert installed.returncode == 0, installed.stdout + installed.stderr
    compiled = npm("run", "build")
    assert compiled.returncode == 0, compiled.stdout + compiled.stderr
    return copy / EXAMPLE


class TypeScriptMember:
    """The example as a process; what it says, line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[dict] = []
        self.owned: dict[int, int] = {}
        """Partition to the offset at which it was taken over."""
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for line in self.process.stdout:
            event = json.loads(line)
            self.said.append(event)
            if event["event"] == "assigned":
                self.owned = {int(p): offset for p, offset in event["offsets"].items()}
            else:
                self.owned = {} if event["event"] in ("revoked", "lost", "left") else self.owned

    @property
    def partitions(self) -> set[TopicPartition]:
        return {TopicPartition("rows", number) for number in self.owned}

    def last(self, event: str) -> dict:
        return next(line for line in reversed(self.said) if line["event"] == event)

    async def end(self) -> int:
        status = await self.process.wait()
        await self._reader
        return status


@contextlib.asynccontextmanager
async def typescript(built: Path, address: str, *flags: str):
    process = await asyncio.create_subprocess_exec(
        *["node", "dist/main.js", "--bootstrap", address, "--group", "g", "--topic", "rows"],
        *["--partitions", str(PARTITIONS), "--session-timeout-ms", str(SESSION_MS)],
        *["--rebalance-timeout-ms", "20000", "--heartbeat-interval-ms", "200", "--row-ms", "20"],
        *flags,
        cwd=built,
        stdout=subprocess.PIPE,
    )
    member = TypeScriptMember(process)
    try:
        yield member
    finally:
        if process.returncode is None:
            process.kill()
        await member.end()


@contextlib.asynccontextmanager
async def python(address: str):
    """A member in Python that keeps up with what happens to it."""
    member = GroupMember(
        address,
        "g",
        {"rows": PARTITIONS},
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=20_000,
        heartbeat_interval_ms=200,
    )
    async with member:

        async def poll() -> None:
            async for _ in member.events():
                pass  # Polling is what says that it has finished with what it gives back.

        polling = asyncio.create_task(poll())
        try:
            yield member
        finally:
            polling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await polling


def share_everything(one, other) -> bool:
    mine, theirs = set(one.partitions), set(other.assignment)
    return mine and theirs and not mine & theirs and mine | theirs == EVERYTHING


async def test_it_follows_a_python_leader_and_takes_over_when_that_dies(built):
    async with running() as server:
        async with python(server.address) as leader:
            await until(lambda: set(leader.assignment) == EVERYTHING)
            await leader.commit(dict.fromkeys(EVERYTHING, 1_000))
            async with typescript(built, server.address) as follower:
                await until(lambda: share_everything(follower, leader))
                assert leader.is_leader
                assert follower.last("assigned")["leader"] is False
                assert len(follower.owned) == len(leader.assignment) == PARTITIONS // 2
                assert set(follower.owned.values()) == {1_000}

                await leader.commit(dict.fromkeys(leader.assignment, 5_000))
                theirs = {partition.partition for partition in leader.assignment}
                died_at = time.monotonic()
                await leader.close(leave=False)  # As if killed: it says nothing, ever again.
                await until(lambda: follower.partitions == EVERYTHING)
                assert time.monotonic() - died_at > SESSION_MS / 1000 / 2
                assert follower.last("assigned")["leader"] is True
                assert {follower.owned[number] for number in theirs} == {5_000}
                mine = [at for number, at in follower.owned.items() if number not in theirs]
                assert all(1_000 < at < 5_000 for at in mine)  # Where it had got to itself.


async def test_it_leads_a_python_follower_and_hands_over_when_it_leaves(built):
    async with running() as server:
        async with typescript(built, server.address) as leader:
            await until(lambda: leader.partitions == EVERYTHING)
            assert leader.last("assigned")["leader"] is True
            async with python(server.address) as follower:
                await until(lambda: share_everything(leader, follower))
                assert leader.last("assigned")["leader"] is True
                assert not follower.is_leader
                # It committed what it gave back before anybody else could have it.
                given_back = leader.last("revoked")["offsets"]
                committed = await follower.committed(follower.assignment)
                assert committed == {p: given_back[str(p.partition)] for p in follower.assignment}

                leader.process.send_signal(signal.SIGTERM)
                assert await leader.end() == 0
                assert leader.said[-1] == {"event": "left"}
                await until(lambda: set(follower.assignment) == EVERYTHING)
                removed = [e for e in server.events if isinstance(e, MemberEvicted | MemberLeft)]
                assert [type(e) for e in removed] == [MemberLeft]  # Not by its session's end.
                done = {int(p): offset for p, offset in leader.last("revoked")["offsets"].items()}
                committed = await follower.committed(TopicPartition("rows", p) for p in done)
                assert {p.partition: offset for p, offset in committed.items()} == done


async def test_python_takes_over_from_one_that_was_killed(built):
    async with running() as server:
        async with python(server.address) as survivor:
            async with typescript(built, server.address) as victim:
                await until(lambda: share_everything(victim, survivor))
                victim.process.kill()
                await victim.end()
                await until(lambda: set(survivor.assignment) == EVERYTHING)
                assert survivor.is_leader


async def test_two_of_them_share_a_group(built):
    async with running() as server:
        async with typescript(built, server.address) as first:
            await until(lambda: first.partitions == EVERYTHING)
            async with typescript(built, server.address) as second:
                await until(lambda: len(first.owned) == len(second.owned) == PARTITIONS // 2)
                assert first.partitions | second.partitions == EVERYTHING
                leaders = [each.last("assigned")["leader"] for each in (first, second)]
                assert sorted(leaders) == [False, True]


async def test_whose_instance_id_was_taken_stops(built):
    async with running() as server:
        async with typescript(built, server.address, "--instance-id", "a") as first:
            await until(lambda: first.partitions == EVERYTHING)
            async with typescript(built, server.address, "--instance-id", "a") as second:
                await until(lambda: second.partitions == EVERYTHING)
                assert await first.end() == 1
                assert "FENCED_INSTANCE_ID" in first.last("refused")["reason"]
                assert first.owned == {}


async def test_a_coordinator_that_comes_back_is_found_without_a_rebalance(built, tmp_path):
    flags = ["--listen", f"127.0.0.1:{free_port()}", "--data-dir", str(tmp_path)]
    flags += ["--group-initial-rebalance-delay-ms", "0", "--group-min-session-timeout-ms", "100"]
    patient = ["--session-timeout-ms", "20000"]
    loop = asyncio.get_running_loop()
    with await loop.run_in_executor(None, lambda: Process(*flags)) as server:
        async with typescript(built, server.address, *patient) as member:
            await until(lambda: member.partitions == EVERYTHING)
            server.kill()
            with await loop.run_in_executor(None, lambda: Process(*flags)):
                async with python(server.address) as other:
                    await until(lambda: share_everything(member, other))
                    # Kept until the newcomer's rebalance: neither lost, nor joined anew.
                    kinds = [line["event"] for line in member.said]
                    kinds = [kind for kind in kinds if kind != "not committed"]
                    assert kinds == ["assigned", "revoked", "assigned"]


SLOW = """
import { Member } from "./dist/member.js";
const say = (what) => console.log(JSON.stringify({ event: "tried", ...what }));
const outcome = (work) => work.then(() => "stored", (error) => error.name);
let first;
const member = new Member(
  {
    bootstrap: [process.argv[1]], groupId: "g", topics: new Map([["rows", 6]]), clientId: "slow",
    sessionTimeoutMs: 30000, rebalanceTimeoutMs: 20000, heartbeatIntervalMs: 50,
  },
  {
    assigned(held) {
      if (first === undefined) {
        first = held[0];
        void outcome(member.commit([{ holding: first, offset: -1n }])).then((negative) =>
          say({ negative }),
        );
        return;
      }
      const now = held.find(({ partition }) => partition === first.partition);
      if (now === undefined) return;
      void (async () => {
        const late = await outcome(member.commit([{ holding: first, offset: 10n }]));
        const both = [{ holding: now, offset: 500n }, { holding: first, offset: 10n }];
        const mixed = await outcome(member.commit(both));
        const fresh = await outcome(member.commit([{ holding: now, offset: 500n }]));
        say({ partition: now.partition, late, mixed, fresh });
      })();
    },
    async revoked() {},
    lost() {},
  },
);
await member.run(AbortSignal.timeout(600_000));
"""


async def test_a_late_commit_for_a_partition_that_came_back_is_refused_before_any_call(built):
    async with running() as server:
        slow = TypeScriptMember(
            await asyncio.create_subprocess_exec(
                *["node", "--input-type=module", "-e", SLOW, server.address],
                cwd=built,
                stdout=subprocess.PIPE,
            )
        )
        try:
            await until(lambda: slow.said)
            assert slow.said[0]["negative"] == "RangeError"
            async with python(server.address) as other:
                await until(lambda: other.assignment)
            await until(lambda: len(slow.said) > 1)
            tried = slow.said[-1]
            assert (tried["late"], tried["mixed"], tried["fresh"]) == (
                "NotHeld",
                "NotHeld",
                "stored",
            )
            async with python(server.address) as other:
                partition = TopicPartition("rows", tried["partition"])
                assert await other.committed([partition]) == {partition: 500}
        finally:
            slow.process.kill()
            await slow.end()


DIVIDE = """
import { assignRanges } from "./dist/rangeAssignor.js";
import { encodeAssignment, encodeSubscription } from "./dist/consumerProtocol.js";
import { readFileSync } from "node:fs";
const hex = (bytes) => Buffer.from(bytes).toString("hex");
const answers = JSON.parse(readFileSync(0)).map(({ members, topics }) => {
  const shares = assignRanges(members, new Map(topics));
  return {
    shares: Object.fromEntries([...shares].map(([id, mine]) => [id, hex(encodeAssignment(mine))])),
    subscriptions: members.map((member) => hex(encodeSubscription(member.topics))),
  };
});
console.log(JSON.stringify(answers));
"""


def test_it_divides_as_python_does_and_writes_the_same_bytes(built):
    chance = random.Random(7)
    cases = []
    for _ in range(200):
        topics = {f"t{n}": chance.randrange(1, 9) for n in range(chance.randrange(1, 4))}
        members = [
            {
                "memberId": f"m-{chance.randrange(10**6)}-{n}",
                "instanceId": chance.choice([None, f"i{n}"]),
                "topics": chance.sample(sorted(topics), chance.randrange(1, len(topics) + 1)),
            }
            for n in range(chance.randrange(1, 6))
        ]
        cases.append({"members": members, "topics": topics})
    asked = [
        {
            "members": [{k: v for k, v in m.items() if v is not None} for m in case["members"]],
            "topics": list(case["topics"].items()),
        }
        for case in cases
    ]
    done = subprocess.run(
        ["node", "--input-type=module", "-e", DIVIDE],
        cwd=built,
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for case, answer in zip(cases, json.loads(done.stdout), strict=True):
        members = {
            m["memberId"]: Subscription(topics=tuple(m["topics"]), instance_id=m["instanceId"])
            for m in case["members"]
        }
        shares = by_name("range").assign(ClusterView(partitions=case["topics"]), members)
        expected = {
            member_id: encode_assignment(Assignment(tuple(partitions)), version=1).hex()
            for member_id, partitions in shares.items()
        }
        assert answer["shares"] == expected
        for member, written in zip(case["members"], answer["subscriptions"], strict=True):
            topics = decode_subscription(bytes.fromhex(written)).topics
            assert set(topics) == set(member["topics"])
