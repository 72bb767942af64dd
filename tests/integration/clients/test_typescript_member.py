"""The TypeScript package of deploy/clients: its workers in one group with members in Python."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import io
import json
import random
import re
import shlex
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.assignors import ClusterView, Subscription, TopicPartition, by_name
from coordinator.assignors.consumer_protocol import (
    Assignment,
    PreviousAssignment,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from coordinator.cli.main import main
from coordinator.client import Member
from coordinator.client.member.calls import JoinedMember
from coordinator.client.member.classic.assigning import share_out, subscriptions
from coordinator.core.events import MemberEvicted, MemberLeft
from coordinator.testing.conformance.__main__ import main as conformance
from tests.integration.waiting import until
from tests.node import install, missing_node, npm
from tests.patience import HANG_S
from tests.serving import Process, free_port, running

ROOT = Path(__file__).parents[3]
PACKAGE = Path("deploy/clients/typescript")
SCRIPTS = Path("tests/client/scripts")
PARTITIONS = 6
EVERYTHING = {TopicPartition("rows", number) for number in range(PARTITIONS)}
SESSION_MS = 6_000


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The package, installed and compiled in a copy with nothing else but contract and scripts."""
    if reason := missing_node():
        pytest.skip(reason)
    copy = tmp_path_factory.mktemp("typescript")
    leftovers = shutil.ignore_patterns("node_modules", "dist", "generated")
    shutil.copytree(ROOT / "protos", copy / "protos")
    shutil.copytree(ROOT / PACKAGE, copy / PACKAGE, ignore=leftovers)
    shutil.copytree(ROOT / SCRIPTS, copy / SCRIPTS)
    if reason := install(copy / PACKAGE):
        pytest.skip(reason)
    compiled = npm(copy / PACKAGE, "run", "build")
    assert compiled.returncode == 0, compiled.stdout + compiled.stderr
    return copy / PACKAGE


class TypeScriptWorker:
    """A worker as a process; what it prints, line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.printed: list[dict] = []
        self.logged: list[str] = []
        self.owned: dict[int, int] = {}
        """Partition to the offset at which it was taken over."""
        self.ended: dict[int, int] = {}
        """Partition to the offset at which its handler ended last."""
        self._readers = [
            asyncio.create_task(self._read()),
            asyncio.create_task(self._read_log()),
        ]

    async def _read(self) -> None:
        async for line in self.process.stdout:
            event = json.loads(line)
            self.printed.append(event)
            if event["event"] == "started":
                self.owned[event["partition"]] = event["offset"]
            elif event["event"] == "ended":
                del self.owned[event["partition"]]
                self.ended[event["partition"]] = event["offset"]

    async def _read_log(self) -> None:
        async for line in self.process.stderr:
            self.logged.append(line.decode().rstrip("\n"))

    @property
    def partitions(self) -> set[TopicPartition]:
        return {TopicPartition("rows", number) for number in self.owned}

    def last(self, event: str) -> dict:
        return next(line for line in reversed(self.printed) if line["event"] == event)

    def logs(self, text: str) -> list[str]:
        return [line for line in self.logged if text in line]

    async def end(self) -> int:
        status = await self.process.wait()
        await asyncio.gather(*self._readers)
        return status


@contextlib.asynccontextmanager
async def node(built: Path, *arguments: str):
    process = await asyncio.create_subprocess_exec(
        "node", *arguments, cwd=built, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    worker = TypeScriptWorker(process)
    try:
        yield worker
    finally:
        if process.returncode is None:
            process.kill()
        await worker.end()


def typescript(built: Path, address: str, *flags: str):
    """The example worker; eager as Python's members are, unless the flags say otherwise."""
    return node(
        built,
        *["dist/main.js", "--bootstrap", address, "--group", "g", "--topic", "rows"],
        *["--partitions", str(PARTITIONS), "--session-timeout-ms", str(SESSION_MS)],
        *["--rebalance-timeout-ms", "20000", "--heartbeat-interval-ms", "200", "--row-ms", "20"],
        *["--assignors", "range", *flags],
    )


@contextlib.asynccontextmanager
async def python(address: str, assignor: str = "range"):
    """A member in Python that keeps up with what happens to it."""
    member = Member(
        address,
        "g",
        {"rows": PARTITIONS},
        assignors=(assignor,),
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
                assert follower.last("started")["leader"] is False
                assert len(follower.owned) == len(leader.assignment) == PARTITIONS // 2
                assert set(follower.owned.values()) == {1_000}

                await leader.commit(dict.fromkeys(leader.assignment, 5_000))
                theirs = {partition.partition for partition in leader.assignment}
                died_at = time.monotonic()
                await leader.close(leave=False)  # As if killed: it says nothing, ever again.
                await until(lambda: follower.partitions == EVERYTHING)
                assert time.monotonic() - died_at > SESSION_MS / 1000 / 2
                assert follower.last("started")["leader"] is True
                assert {follower.owned[number] for number in theirs} == {5_000}
                mine = [at for number, at in follower.owned.items() if number not in theirs]
                assert all(1_000 < at < 5_000 for at in mine)  # Where it had got to itself.


async def test_it_leads_a_python_follower_and_hands_over_when_it_leaves(built):
    async with running() as server:
        async with typescript(built, server.address) as leader:
            await until(lambda: leader.partitions == EVERYTHING)
            assert leader.last("started")["leader"] is True
            async with python(server.address) as follower:
                await until(lambda: share_everything(leader, follower))
                assert leader.last("started")["leader"] is True
                assert not follower.is_leader
                # It committed what it gave back before anybody else could have it.
                committed = await follower.committed(follower.assignment)
                assert committed == {p: leader.ended[p.partition] for p in follower.assignment}

                mine = leader.partitions
                leader.process.send_signal(signal.SIGTERM)
                assert await leader.end() == 0
                assert leader.printed[-1] == {"event": "left"}
                await until(lambda: set(follower.assignment) == EVERYTHING)
                removed = [e for e in server.events if isinstance(e, MemberEvicted | MemberLeft)]
                assert [type(e) for e in removed] == [MemberLeft]  # Not by its session's end.
                committed = await follower.committed(mine)
                assert committed == {p: leader.ended[p.partition] for p in mine}


async def test_cooperatively_only_what_moves_is_given_back(built):
    cooperative = "cooperative-sticky"
    async with running() as server:
        async with typescript(built, server.address, "--assignors", cooperative) as leader:
            await until(lambda: leader.partitions == EVERYTHING)
            async with python(server.address, cooperative) as follower:
                await until(lambda: share_everything(leader, follower))
                assert leader.last("started")["leader"] is True
                moved = {p.partition for p in follower.assignment}
                assert set(leader.ended) == moved, "the others went on"
                committed = await follower.committed(follower.assignment)
                assert committed == {p: leader.ended[p.partition] for p in follower.assignment}
            await until(lambda: leader.partitions == EVERYTHING)
        async with python(server.address, cooperative) as leader:
            await until(lambda: set(leader.assignment) == EVERYTHING)
            async with typescript(built, server.address, "--assignors", cooperative) as follower:
                await until(lambda: share_everything(follower, leader))
                follower.process.kill()
                await follower.end()
                await until(lambda: set(leader.assignment) == EVERYTHING)


async def test_python_takes_over_from_one_that_was_killed(built):
    async with running() as server:
        async with python(server.address) as survivor:
            async with typescript(built, server.address) as victim:
                await until(lambda: share_everything(victim, survivor))
                victim.process.kill()
                await victim.end()
                await until(lambda: set(survivor.assignment) == EVERYTHING)
                assert survivor.is_leader


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
async def test_two_of_them_share_a_group(built, assignor):
    flags = ["--assignors", assignor]
    async with running() as server:
        async with typescript(built, server.address, *flags) as first:
            await until(lambda: first.partitions == EVERYTHING)
            async with typescript(built, server.address, *flags) as second:
                await until(lambda: len(first.owned) == len(second.owned) == PARTITIONS // 2)
                assert first.partitions | second.partitions == EVERYTHING
                leaders = [each.last("started")["leader"] for each in (first, second)]
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
        async with typescript(built, server.address, *patient) as worker:
            await until(lambda: worker.partitions == EVERYTHING)
            server.kill()
            with await loop.run_in_executor(None, lambda: Process(*flags)):
                async with python(server.address) as other:
                    await until(lambda: share_everything(worker, other))
                    # Kept until the newcomer's rebalance: neither lost, nor joined anew.
                    kinds = [line["event"] for line in worker.printed]
                    expected = ["started"] * 6 + ["ended"] * 6 + ["started"] * 3
                    assert kinds == expected
                    assert all(line.get("valid", True) for line in worker.printed)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_has_it_leave_and_say_why(built, number):
    async with running() as server:
        async with typescript(built, server.address) as worker:
            await until(lambda: worker.partitions == EVERYTHING)
            worker.process.send_signal(number)
            assert await worker.end() == 0
            assert worker.logs(f"left the group: stopped by {number.name}")
            assert not worker.logs("lost")
            assert not worker.logs("    at "), "no stack"
            explained = asyncio.to_thread(explain, server.address)
            assert f"left and said: stopped by {number.name}." in await explained


def explain(address: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["explain", "g", "--bootstrap", address]) == 0
    return out.getvalue()


HANGING = """
import { Worker } from "./dist/index.js";
const worker = new Worker(process.argv[1], "g", { topics: { rows: 1 } });
worker.handler((p) => {
  console.log(JSON.stringify({ event: "started", partition: p.number, offset: 0 }));
  return new Promise(() => setInterval(() => {}, 1_000));
});
await worker.run();
"""


async def test_the_second_signal_ends_it_at_once(built):
    async with running() as server:
        async with node(built, "--input-type=module", "-e", HANGING, server.address) as worker:
            await until(lambda: worker.owned)
            worker.process.send_signal(signal.SIGTERM)
            await until(lambda: worker.logs("stopped by SIGTERM: handlers have"))
            worker.process.send_signal(signal.SIGTERM)
            assert await worker.end() == -signal.SIGTERM


async def test_a_coordinator_that_is_down_is_said_and_found_when_it_comes(built):
    port = free_port()
    async with typescript(built, f"127.0.0.1:{port}") as worker:
        await until(lambda: len(worker.logs("coordinator unreachable")) > 1)
        first, *_ = worker.logs("coordinator unreachable")
        assert re.search(r"WARN .*member .* of group g: .*unreachable for 1\.\d s \(127", first)
        assert worker.printed == []
        async with running(listen=f"127.0.0.1:{port}"):
            await until(lambda: worker.partitions == EVERYTHING)
            assert worker.logs("coordinator reached again")


async def test_the_worker_of_the_readme_survives_a_kill(built):
    """Each row is done, from where the killed one had got to; only the row under way twice."""
    printed = re.findall(r"```js\n(.*?)```", (ROOT / PACKAGE / "README.md").read_text(), re.DOTALL)
    (worker,) = (program for program in printed if "new Worker(" in program)
    async with running() as server:
        quick = "topics: { invoices: 3 }, sessionTimeoutMs: 6_000, heartbeatIntervalMs: 200"
        assert worker.count("topics: { invoices: 3 }") == worker.count("127.0.0.1:7400") == 1
        worker = worker.replace("topics: { invoices: 3 }", quick)
        (built / "worker.mjs").write_text(worker.replace("127.0.0.1:7400", server.address))
        for number in range(3):
            (built / f"invoices-{number}.txt").write_text("\n".join(map(str, range(150))) + "\n")
        done: list[str] = []
        for is_killed in (True, False):
            process = await asyncio.create_subprocess_exec(
                *["node", "worker.mjs"], cwd=built, stdout=subprocess.PIPE
            )
            try:
                wanted = 60 if is_killed else 3 * 150
                async with asyncio.timeout(HANG_S):
                    while len(set(done)) < wanted:
                        line = await process.stdout.readline()
                        assert line, "it has ended"
                        done.append(line.decode().strip())
                process.send_signal(signal.SIGKILL if is_killed else signal.SIGTERM)
                done += (await process.stdout.read()).decode().split("\n")[:-1]
                assert await process.wait() == (-signal.SIGKILL if is_killed else 0)
            finally:
                if process.returncode is None:
                    process.kill()
        expected = {f"invoices-{n} row {row}" for n in range(3) for row in range(150)}
        assert set(done) == expected
        assert len(done) <= len(expected) + 3, "one row of each partition may be done twice"


SLOW = """
import { Worker } from "./dist/index.js";
const say = (event, what) => console.log(JSON.stringify({ event, ...what }));
const outcome = (work) => work.then(() => "stored", (error) => error.name);
let first;
const worker = new Worker(process.argv[1], "g", {
  topics: { rows: 6 },
  assignors: "range",
  sessionTimeoutMs: 30_000,
  rebalanceTimeoutMs: 2_000,
  heartbeatIntervalMs: 50,
});
const over = (p) => new Promise((resolve) => p.signal.addEventListener("abort", resolve));
worker.handler(async (p) => {
  if (first === undefined) {
    first = p;
    const negative = await outcome(p.commit(-1));
    say("first", { partition: p.number, negative });
    await over(p);
    say("overdue", { partition: p.number, valid: p.valid });
    const waits = () => worker.state.partitions.some(({ stage }) => stage === "waiting");
    while (!waits()) await new Promise((resolve) => setTimeout(resolve, 20));
    const late = await outcome(p.commit(10));
    const shown = await outcome(worker.commit([[p, 10]]));
    say("late", { late, shown });
  } else if (p.number === first.number) {
    const late = await outcome(first.commit(10));
    const fresh = await outcome(p.commit(500));
    say("again", { late, fresh, isNewer: p.token > first.token });
    await over(p);
  } else {
    while (!p.revoking.aborted) await new Promise((resolve) => setTimeout(resolve, 20));
  }
});
await worker.run();
"""


async def test_a_late_commit_for_a_partition_that_came_back_is_refused_before_any_call(built):
    async with running() as server:
        async with node(built, "--input-type=module", "-e", SLOW, server.address) as slow:
            await until(lambda: slow.printed)
            assert slow.last("first")["negative"] == "CommitFailed"
            moved = TopicPartition("rows", slow.last("first")["partition"])
            async with python(server.address) as other:
                await until(lambda: other.assignment)
                assert slow.last("overdue")["valid"] is False
                if moved in other.assignment:
                    await other.commit({moved: 100})
            await until(lambda: slow.printed[-1]["event"] == "again")
            assert slow.last("late") == {
                "event": "late",
                "late": "StaleMember",
                "shown": "StaleMember",
            }
            again = {"event": "again", "late": "StaleMember", "fresh": "stored", "isNewer": True}
            assert slow.last("again") == again
            async with python(server.address) as other:
                assert await other.committed([moved]) == {moved: 500}


def test_its_own_tests_pass_the_scripts_among_them(built):
    tested = npm(built, "test")
    assert tested.returncode == 0, tested.stdout + tested.stderr
    played = re.findall(
        r"^ +ok \d+ - (\S+), (?:range|cooperative-sticky)$", tested.stdout, re.MULTILINE
    )
    assert set(played) == {path.stem for path in (ROOT / SCRIPTS).glob("*.txt")}
    assert "# fail 0" in tested.stdout
    assert "# skipped 0" in tested.stdout


DIVIDE = """
import { ASSIGNORS } from "./dist/assignors/index.js";
import * as protocol from "./dist/assignors/consumerProtocol.js";
import { readFileSync } from "node:fs";
const hex = (bytes) => Buffer.from(bytes).toString("hex");
const answers = JSON.parse(readFileSync(0)).map(({ members, topics, assignor }) => {
  const subscribers = members.map(({ memberId, instanceId, metadata }) => ({
    ...protocol.decodeSubscription(Buffer.from(metadata, "hex")), memberId, instanceId,
  }));
  const shares = [...ASSIGNORS[assignor](subscribers, new Map(topics))];
  return {
    shares: Object.fromEntries(
      shares.map(([id, partitions]) => [id, hex(protocol.encodeAssignment({ partitions }))]),
    ),
    subscriptions: subscribers.map((one) => hex(protocol.encodeSubscription(one))),
  };
});
console.log(JSON.stringify(answers));
"""


class Case:
    """A group to be divided: its members by id, with what they say they own, and its topics."""

    def __init__(self, chance: random.Random, assignor: str, *, alike: bool) -> None:
        self.assignor, self.alike = assignor, alike
        self.topics = {f"t{n}": chance.randrange(1, 9) for n in range(chance.randrange(1, 4))}
        everything = [
            TopicPartition(t, p) for t, count in self.topics.items() for p in range(count)
        ]
        self.members = {}
        for n in range(chance.randrange(1, 6)):
            wanted = sorted(self.topics)
            if not alike:
                wanted = sorted(chance.sample(wanted, chance.randrange(1, len(wanted) + 1)))
            owned = chance.sample(everything, chance.randrange(len(everything) + 1))
            self.members[f"m-{chance.randrange(10**6)}-{n}"] = Subscription(
                topics=tuple(wanted),
                owned_partitions=tuple(sorted(owned)) if assignor != "range" else (),
                generation=chance.choice([3, 3, 3, 2, -1]),
                instance_id=chance.choice([None, f"i{n}"]),
            )

    def some(self, chance: random.Random) -> tuple[TopicPartition, ...]:
        """A few of its partitions; often none."""
        found = [TopicPartition(t, p) for t, count in self.topics.items() for p in range(count)]
        return tuple(sorted(chance.sample(found, min(len(found), chance.choice([0, 0, 1, 3])))))

    def divided(self) -> dict[str, list[TopicPartition]]:
        return by_name(self.assignor).assign(ClusterView(partitions=self.topics), self.members)

    def asked(self) -> dict:
        members = [
            {"memberId": member_id, "metadata": encode_subscription(member).hex()}
            | ({"instanceId": member.instance_id} if member.instance_id else {})
            for member_id, member in self.members.items()
        ]
        topics = list(self.topics.items())
        return {"members": members, "topics": topics, "assignor": self.assignor}

    def holding(self, shares: dict[str, list[TopicPartition]]) -> Case:
        """The same group, when everybody holds its share."""
        held = copy.copy(self)
        held.members = {
            member_id: replace(member, owned_partitions=tuple(shares[member_id]), generation=4)
            for member_id, member in self.members.items()
        }
        return held


def divided_by_typescript(built: Path, cases: list[Case]) -> list[dict]:
    return run(built, DIVIDE, [case.asked() for case in cases])


def run(built: Path, program: str, asked: list[dict]) -> list[dict]:
    done = subprocess.run(
        ["node", "--input-type=module", "-e", program],
        cwd=built,
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_divides_as_python_does_and_writes_the_same_bytes(built):
    chance = random.Random(7)
    cases = [Case(chance, "range", alike=False) for _ in range(200)]
    cases += [Case(chance, "cooperative-sticky", alike=True) for _ in range(400)]
    for case, answer in zip(cases, divided_by_typescript(built, cases), strict=True):
        expected = {
            member_id: encode_assignment(Assignment(tuple(partitions))).hex()
            for member_id, partitions in case.divided().items()
        }
        assert answer["shares"] == expected
        written = [encode_subscription(member).hex() for member in case.members.values()]
        assert answer["subscriptions"] == written


LEAD = """
import { shareOut, subscribe } from "./dist/assignors/index.js";
import { decodeSubscription } from "./dist/assignors/consumerProtocol.js";
import { readDeclaration } from "./dist/assignors/declarations.js";
import { readFileSync } from "node:fs";
const answers = JSON.parse(readFileSync(0)).map(({ members, topics, assignor }) => {
  const joined = members.map((one) => ({ ...one, metadata: Buffer.from(one.metadata, "hex") }));
  const { assignments, warnings } = shareOut(assignor, joined[0].memberId, new Map(topics), joined);
  const hex = ({ memberId, assignment }) => [memberId, assignment.toString("hex")];
  const again = joined.map(({ metadata }) => {
    const read = decodeSubscription(metadata);
    return subscribe(assignor, read, readDeclaration(read.topics, read.userData)).toString("hex");
  });
  return { shares: Object.fromEntries(assignments.map(hex)), warnings, again };
});
console.log(JSON.stringify(answers));
"""


def test_it_declares_and_leads_as_python_does(built):
    """Counts that only followers know, counts that differ, partitions to keep away; byte for byte,
    so that a follower of either language knows what was divided."""
    chance = random.Random(9)
    asked, expected = [], []
    for _ in range(300):
        case = Case(chance, chance.choice(["range", "cooperative-sticky"]), alike=True)
        held = [(m, replace(s, unwanted=case.some(chance))) for m, s in case.members.items()]
        counts = {m: {t: chance.choice([n, 7]) for t, n in case.topics.items()} for m, _ in held}
        joined = [
            JoinedMember(m, s.instance_id, subscriptions(
                [case.assignor], s, PreviousAssignment(()), counts[m])[0][1])
            for m, s in held
        ]  # fmt: skip
        leader = held[0][0]
        members = [
            {"memberId": one.member_id, "metadata": one.metadata.hex()}
            | ({"instanceId": one.instance_id} if one.instance_id else {})
            for one in joined
        ]
        topics = list(counts[leader].items())
        asked.append({"members": members, "topics": topics, "assignor": case.assignor})
        expected.append((joined, share_out(case.assignor, leader, counts[leader], joined)))
    for answer, (joined, division) in zip(run(built, LEAD, asked), expected, strict=True):
        assert answer["again"] == [one.metadata.hex() for one in joined]
        assert answer["shares"] == {m: given.hex() for m, given in division.assignments}
        assert len(answer["warnings"]) == len(division.warnings)


def test_where_wishes_differ_it_is_as_even_and_leaves_what_python_divided(built):
    """A new leader in the other language moves nothing that is where it should be."""
    chance = random.Random(8)
    cases = [Case(chance, "cooperative-sticky", alike=False) for _ in range(300)]
    for case in cases:
        for member_id, member in case.members.items():
            case.members[member_id] = replace(member, owned_partitions=())
    mine = [case.divided() for case in cases]
    theirs = [shares_of(answer) for answer in divided_by_typescript(built, cases)]
    for case, ours, their in zip(cases, mine, theirs, strict=True):
        assert sorted(map(len, their.values())) == sorted(map(len, ours.values()))
        for member_id, partitions in their.items():
            assert {p.topic for p in partitions} <= set(case.members[member_id].topics)
        dealt = sorted(p for partitions in their.values() for p in partitions)
        assert dealt == sorted(p for partitions in ours.values() for p in partitions)
        assert case.holding(their).divided() == their
    later = [case.holding(ours) for case, ours in zip(cases, mine, strict=True)]
    assert [shares_of(answer) for answer in divided_by_typescript(built, later)] == mine


def shares_of(answer: dict) -> dict[str, list[TopicPartition]]:
    return {
        member_id: list(decode_assignment(bytes.fromhex(share)).partitions)
        for member_id, share in answer["shares"].items()
    }


def test_its_session_member_conforms(built, capsys):
    subject = shlex.join(["node", str(built / "dist/subject.js")])
    status = conformance(["--client", subject, "--json"])
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {each["name"]: each["problem"] for each in results if each["problem"]} == {}
    assert (status, len(results) > 35) == (0, True)


def test_its_session_protocol_is_small():
    source = (ROOT / PACKAGE / "src/member/session").glob("*.ts")
    lines = [line.strip() for path in source for line in path.read_text().splitlines()]
    code = [line for line in lines if line and not line.startswith(("//", "/*", "*"))]
    assert len(code) <= 500
