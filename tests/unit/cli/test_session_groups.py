"""Commands about session groups, against a server with a member that is played by hand."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json

import grpc
import pytest

from coordinator.cli.main import main
from coordinator.v1 import session_pb2 as pb
from tests.kit.serving import running
from tests.kit.session_stream import Stream

PATIENT = pb.GroupPolicy(lease_ms=300_000, join_quiet_ms=0, initial_delay_ms=0)
"""The member sends no heartbeats."""


class Operator:
    """Runs commands against a server, in a thread: the server's loop goes on."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def run(self, *words: str) -> tuple[int, str, str]:
        """Exit status, standard output and error."""
        out, err = io.StringIO(), io.StringIO()

        def command() -> int:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    return main([*words, "--bootstrap", self.address])
                except SystemExit as end:
                    return int(end.code or 0)

        return await asyncio.to_thread(command), out.getvalue(), err.getvalue()

    async def rows(self, *words: str) -> list[dict]:
        status, out, err = await self.run(*words, "-o", "json")
        assert status == 0, err
        return json.loads(out)


@pytest.fixture
async def shell():
    """An operator, and a member that holds the three partitions of a group."""
    async with running() as server, grpc.aio.insecure_channel(server.address) as channel:
        member = Stream(channel)
        await member.attach("w-a", b"1" * 16, wishes=PATIENT)
        await member.next("orders")
        yield Operator(server.address), member


async def test_groups_are_listed_and_described_with_tokens_and_status(shell):
    shell, _ = shell
    [group] = await shell.rows("groups", "list", "--type", "Session")
    assert (group["type"], group["state"], group["members"]) == ("Session", "Stable", 1)
    assert await shell.rows("groups", "list", "--type", "classic") == []
    partitions = await shell.rows("groups", "describe", "g")
    assert [(row["partition"], row["phase"]) for row in partitions] == [
        (0, "held"),
        (1, "held"),
        (2, "held"),
    ]
    first = partitions[0]["token"]
    assert [row["token"] for row in partitions] == [first, first + 1, first + 2]
    [member] = await shell.rows("groups", "members", "g")
    assert (member["group_instance_id"], member["status"], member["lease_ms"]) == (
        "w-a",
        "active",
        300_000,
    )
    assert member["partitions"] == 3
    _, table, _ = await shell.run("groups", "describe", "g")
    assert {"TOKEN", "PHASE", "SUCCESSOR-ID"} <= set(table.splitlines()[0].split())


async def test_log_ends_of_heartbeats_are_the_ends_that_lag_is_measured_by(shell):
    shell, member = shell
    end = pb.SessionHeartbeat.LogEnd(topic="t", partition=1, log_end_offset=70)
    await member.beat(1, log_ends=[end])
    await member.next("heartbeat_ack")
    rows = await shell.rows("groups", "describe", "g")
    assert [row["log_end_offset"] for row in rows] == [None, 70, None]


async def test_wishes_that_differ_from_the_policy_are_named_with_who_asked(shell):
    shell, member = shell
    wishes = pb.GroupPolicy(lease_ms=3_000, mode="WARM", max_return_ms=300_000)
    await Stream(member.channel).attach("w-b", b"2" * 16, wishes=wishes)
    rows = {row["group_instance_id"]: row for row in await shell.rows("groups", "members", "g")}
    assert rows["w-a"]["differing_wishes"] == {}
    assert rows["w-b"]["differing_wishes"] == {"lease_ms": 3_000, "mode": "warm"}
    _, _, notes = await shell.run("groups", "describe", "g")
    assert "has lease_ms 300000; asked for 3000: 'w-b'." in notes
    assert "has mode simple; asked for warm: 'w-b'." in notes
    await shell.run("policy", "set", "g", "lease_ms=3000")
    _, _, notes = await shell.run("groups", "describe", "g")
    assert "has lease_ms 3000; asked for 300000: 'w-a'." in notes


async def test_open_handoffs_and_lost_streams_are_told_in_sentences(shell):
    shell, member = shell
    second = Stream(member.channel)
    await second.attach("w-b", b"2" * 16)
    await member.next("orders")
    _, _, notes = await shell.run("groups", "describe", "g")
    assert "has 1 open hand-off: t-" in notes
    assert "from 'w-a' to 'w-b' (drain" in notes
    assert "waits for 'w-a'" in notes
    second.call.cancel()
    waiting = Stream(member.channel)
    await waiting.attach("w-a", b"3" * 16)
    rows = await shell.rows("groups", "members", "g")
    assert {(row["group_instance_id"], row["status"]) for row in rows} >= {
        ("w-a", "active"),
        ("w-a", "waiting"),
    }
    _, _, notes = await shell.run("groups", "members", "g")
    assert "waits for the name 'w-a'" in notes


async def test_a_policy_is_shown_and_set(shell):
    shell, _ = shell
    shown = {row["setting"]: row["value"] for row in await shell.rows("policy", "show", "g")}
    assert (shown["lease_ms"], shown["mode"], shown["sinks_check_tokens"]) == (
        300_000,
        "simple",
        False,
    )
    changed = await shell.rows(
        "policy", "set", "g", "lease_ms=patient", "mode=warm", "sinks_check_tokens=true",
        "join_quiet_ms=default",
    )  # fmt: skip
    assert {row["setting"]: row["value"] for row in changed} == shown | {
        "lease_ms": 45_000,
        "mode": "warm",
        "sinks_check_tokens": True,
        "join_quiet_ms": 1_000,
    }
    [member] = await shell.rows("groups", "members", "g")
    assert member["lease_ms"] == 300_000  # It was told that one.
    status, _, told = await shell.run("policy", "set", "g", "lease_ms=1000")
    assert status == 1
    assert "lease_ms is 1000; it may be 2000 to 300000" in told
    for wrong in ("lease=3", "mode=fast", "max_idle_ms=-1", "mode"):
        assert (await shell.run("policy", "set", "g", wrong))[0] == 2


async def test_an_eviction_is_a_dry_run_unless_it_is_executed(shell):
    shell, member = shell
    [dry] = await shell.rows("members", "evict", "g", "w-a", "--gone")
    assert (dry["name"], dry["partitions"], dry["executed"]) == ("w-a", 3, False)
    assert (await shell.rows("groups", "members", "g"))[0]["partitions"] == 3
    [done] = await shell.rows("members", "evict", "--gone", "g", "w-a", "--execute")
    assert done["executed"]
    await member.next("refused")
    status, _, told = await shell.run("members", "evict", "g", "w-a")
    assert status == 1
    assert "has no member 'w-a'" in told


async def test_plans_are_explained_and_drawn_with_their_handoffs(shell):
    shell, member = shell
    second = Stream(member.channel)
    await second.attach("w-b", b"2" * 16)
    draining = (await member.next("orders")).orders.topics[0].ranges[0]
    released = pb.SessionAck.Partition(
        topic="t",
        partition=draining.partitions.first,
        kind=pb.SessionAck.RELEASED,
        token=draining.partitions.first_token,
        handoff_id=draining.handoff_id,
        position=70,
    )
    await member.say(ack=pb.SessionAck(partitions=[released]))
    await second.next("orders")
    _, told, _ = await shell.run("explain", "g")
    assert "Plan of group 'g'" in told
    assert "1 partition for balance: t-" in told
    assert "1 hand-off of it ended: 1 released." in told
    plans = await shell.rows("explain", "g", "--last", "2")
    assert [plan["moved_by_reason"] for plan in plans] == [{"balance": 1}, {"free": 3}]
    assert plans[0]["triggers"][0]["cause"] == "member_came"
    [handoff] = await shell.rows("timeline", "g")
    assert (handoff["outcome"], handoff["position"], handoff["mode"]) == ("released", 70, "simple")
    _, drawn, _ = await shell.run("timeline", "g")
    assert f"t-{draining.partitions.first}  ═" in drawn


@pytest.mark.parametrize(
    ("store", "session_ms", "least_lease_ms", "levels"),
    [
        ("etcd://127.0.0.1:1/x", 300_000, 2_000, ["note"]),
        ("etcd://127.0.0.1:1/x", 501, 3_000, ["note"]),
        ("etcd://127.0.0.1:1/x", 300_000, 3_001, []),
        ("etcd://127.0.0.1:1/x", 500, 2_000, []),
        ("sqlite", 300_000, 2_000, []),
    ],
)
def test_a_store_session_that_is_long_for_short_leases_is_noted(
    store, session_ms, least_lease_ms, levels, capsys
):
    words = f"config check --store {store} --store-session-timeout-ms {session_ms}"
    words += f" --group-min-lease-ms {least_lease_ms}"
    assert main([*words.split(), "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["level"] for row in rows if "profile fast" in row["message"]] == levels
    assert main(words.split()) == 0
    assert ("note: store_session" in capsys.readouterr().out) == bool(levels)
