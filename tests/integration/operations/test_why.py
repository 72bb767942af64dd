"""Staged incidents on a live server: each is explained as it was, and drawn."""

from __future__ import annotations

import contextlib
import io
import json
import re
import signal
import threading
import time
from concurrent.futures import Future
from xml.etree import ElementTree as ET

import grpc
import pytest

from coordinator.cli.main import main
from coordinator.operator.admin import GroupAdmin
from coordinator.v1 import admin_pb2, admin_pb2_grpc, group_pb2_grpc
from coordinator.v1 import group_pb2 as pb
from coordinator.v1.errors_pb2 import ErrorCode
from tests.integration.waiting import wait_until
from tests.kit import requests
from tests.kit.patience import HANG_S
from tests.kit.serving import Process

GROUP = "orders"


class Client:
    """A member that does exactly what it is told, when it is told."""

    def __init__(self, channel: grpc.Channel, name: str, *protocols: str, instance=None) -> None:
        self.stub = group_pb2_grpc.GroupCoordinatorStub(channel)
        self.admin = admin_pb2_grpc.GroupAdminStub(channel)
        self.name, self.instance = name, instance
        self.protocols = protocols or ("range",)
        self.member_id, self.generation, self.leader = "", -1, ""
        self.session_ms = 60_000

    def join(self, reason: str = "") -> Future:
        return self.stub.JoinGroup.future(
            requests.join(
                GROUP,
                session_timeout_ms=self.session_ms,
                member_id=self.member_id,
                group_instance_id=self.instance,
                protocols=[{"name": name, "metadata": b""} for name in self.protocols],
                client_id=self.name,
                reason=reason,
            ),
            timeout=HANG_S,
        )

    def joined(self, call: Future) -> None:
        answer = call.result()
        assert answer.error_code == ErrorCode.NONE, answer
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self.leader = answer.leader

    def sync(self) -> Future:
        request = pb.SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        if self.leader == self.member_id:
            request.assignments.add(member_id=self.member_id, assignment=b"")
        return self.stub.SyncGroup.future(request, timeout=HANG_S)

    def state(self) -> str:
        """State of the group."""
        asked = admin_pb2.DescribeGroupsRequest(groups=[GROUP])
        return self.admin.DescribeGroups(asked, timeout=HANG_S).groups[0].group_state

    def beat(self) -> None:
        self.stub.Heartbeat(
            pb.HeartbeatRequest(
                group_id=GROUP, generation_id=self.generation, member_id=self.member_id,
                group_instance_id=self.instance,
            ),
            timeout=HANG_S,
        )  # fmt: skip

    def leave(self, reason: str) -> None:
        member = {"member_id": self.member_id, "reason": reason}
        self.stub.LeaveGroup(pb.LeaveGroupRequest(group_id=GROUP, members=[member]), timeout=HANG_S)
        self.member_id = ""


def gather(*clients: Client, slow: Client | None = None, by_s: float = 0.0, reason="") -> None:
    """All join, the slow one later than the others, and get their assignments.

    Who is new comes first: a member at rest that joins before the rebalance is answered at once.
    """
    in_time = [client for client in clients if client is not slow]
    known = [client for client in in_time if client.member_id or client.instance]
    calls = [(client, client.join(reason)) for client in in_time if client not in known]
    if calls and known:
        wait_until(lambda: known[0].state() == "PreparingRebalance")
    calls += [(client, client.join(reason)) for client in known]
    if slow is not None:
        time.sleep(by_s)
        calls.append((slow, slow.join()))
    for client, call in calls:
        client.joined(call)
    for call in [client.sync() for client in clients]:
        assert call.result().error_code == ErrorCode.NONE


@pytest.fixture
def server():
    with Process(
        "--group-min-session-timeout-ms", "500", "--group-initial-rebalance-delay-ms", "100"
    ) as server:
        yield server


@pytest.fixture
def channel(server):
    with grpc.insecure_channel(server.address) as channel:
        yield channel


def command(server, *words: str) -> str:
    """Run a command, and return its output."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([*words, "--bootstrap", server.address])
    assert (status, err.getvalue()) == (0, "")
    return out.getvalue()


def explained(server, *more: str) -> str:
    return command(server, "explain", GROUP, *more)


def test_a_slow_member(server, channel, tmp_path):
    quick, slow, new = Client(channel, "quick"), Client(channel, "slow"), Client(channel, "new")
    gather(quick, slow)
    gather(new, quick, slow, slow=slow, by_s=3.0)
    text = explained(server)
    assert "It began because new (127.0.0.1) joined." in text
    assert re.search(r"slow \(127\.0\.0\.1\) was last, [\d.]+ m?s after the one before", text)
    assert "Advice: slow (127.0.0.1) took " in text
    drawn = command(server, "timeline", GROUP)
    lane = next(line for line in drawn.splitlines() if line.startswith("slow"))
    assert lane.count("▓") > 40
    assert "last, by " in lane
    picture = tmp_path / "slow.svg"
    command(server, "timeline", GROUP, "--file", str(picture))
    root = ET.parse(picture).getroot()
    assert "slow" in root.get("aria-label")
    assert len([e for e in root.iter() if e.tag.endswith("rect")]) > 10
    command(server, "timeline", GROUP, "--file", str(tmp_path / "slow.png"))
    assert (tmp_path / "slow.png").read_bytes().startswith(b"\x89PNG")


def test_a_crashed_member(server, channel):
    well, dead = Client(channel, "well"), Client(channel, "dead")
    well.session_ms, dead.session_ms = 6_000, 3_000
    gather(well, dead)
    with GroupAdmin(server.address) as admin:
        while admin.describe_group(GROUP).group_state == "Stable":
            well.beat()
            time.sleep(0.1)
    gather(well)
    text = explained(server)
    assert "nothing was heard of dead (127.0.0.1) for its whole session timeout" in text
    assert "dead (127.0.0.1) was removed: session expired." in text
    assert "Advice: sessions last 6.0 s here" in text
    assert command(server, "timeline", GROUP).count("removed: session expired") == 1


def test_a_rolling_restart(server, channel):
    one, two = Client(channel, "one"), Client(channel, "two")
    gather(one, two)
    one.leave("deploying 2.0")
    gather(two)
    assert "one (127.0.0.1) left and said: deploying 2.0." in explained(server)
    gather(one, two, reason="started")
    text = explained(server)
    assert "one (127.0.0.1) joined and said: started." in text
    assert "Advice: 'one' had gone" in text
    assert "group_instance_id" in text


def test_a_flapping_member(server, channel):
    well, flapping = Client(channel, "well"), Client(channel, "flapping")
    gather(well, flapping)
    for _ in range(3):
        flapping.leave("")
        gather(well)
        gather(flapping, well)
    text = explained(server)
    assert "Advice: 'flapping' has gone 3 times in the last 7 rebalances." in text
    everything = json.loads(command(server, "explain", GROUP, "--last", "9", "-o", "json"))
    assert [row["cause"] for row in everything[:3]] == ["member joined", "member left"] * 1 + [
        "member joined"
    ]


def test_one_wrong_protocol(server, channel):
    one, wrong = Client(channel, "one", "cooperative-sticky"), Client(channel, "wrong", "range")
    gather(one)
    for _ in range(2):
        assert wrong.join().result().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    text = explained(server)
    assert "2 joins of wrong (127.0.0.1) refused" in text
    assert "It offers range; the members support cooperative-sticky." in text
    rebalance, refused = json.loads(command(server, "explain", GROUP, "-o", "json"))
    assert rebalance["generation"] == 1
    assert {key: refused[key] for key in ("group", "generation", "cause", "outcome")} == {
        "group": GROUP,
        "generation": None,
        "cause": "join refused",
        "outcome": "INCONSISTENT_GROUP_PROTOCOL",
    }
    assert refused["explanation"][0] in text
    both = Client(channel, "both", "range", "cooperative-sticky")
    gather(both, one)
    one.leave("")
    gather(both)
    assert "The group now uses 'range' instead of 'cooperative-sticky'" in explained(server)


def test_who_blocks_says_so_while_it_lasts(server, channel):
    quick, slow = Client(channel, "quick"), Client(channel, "slow")
    assert "does not exist" in wrong(server, "who-blocks", GROUP)
    gather(quick, slow)
    assert "waits for nobody" in command(server, "who-blocks", GROUP)
    call = quick.join("again")
    quick.protocols = ("range", "roundrobin")
    again = quick.join()
    with GroupAdmin(server.address) as admin:
        while admin.describe_group(GROUP).group_state != "PreparingRebalance":
            time.sleep(0.02)
    (row,) = json.loads(command(server, "who-blocks", GROUP, "-o", "json"))
    assert (row["client_id"], row["state"]) == ("slow", "PreparingRebalance")
    assert row["silent_ms"] >= 0
    assert "slow" in command(server, "who-blocks", GROUP)
    slow.joined(slow.join())
    quick.joined(again)
    assert call.done()


def wrong(server, *words: str) -> str:
    err = io.StringIO()
    with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
        assert main([*words, "--bootstrap", server.address]) == 1
    return err.getvalue()


def test_whoever_watches_is_told_at_once(server, channel):
    messages: list = []
    ready = threading.Event()

    def watch() -> None:
        with GroupAdmin(server.address) as admin, contextlib.suppress(grpc.RpcError):
            stream = admin.watch_rebalances([GROUP])
            ready.set()
            messages.extend(stream)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    ready.wait()
    one, two = Client(channel, "one"), Client(channel, "two")
    deadline = time.monotonic() + HANG_S
    while not messages and time.monotonic() < deadline:
        gather(one)  # Watching begins a moment after it was asked for.
        one.leave("again")
    gather(one)
    gather(two, one)
    while messages[-1].client_id != "two" and time.monotonic() < deadline:
        time.sleep(0.02)
    assert messages[-1].explanation[1] == "It began because two (127.0.0.1) joined."
    assert [r.generation_after for r in messages] == sorted(r.generation_after for r in messages)
    with GroupAdmin(server.address) as admin:
        assert (
            admin.journal(GROUP, limit=1).rebalances[0].generation_after
            == messages[-1].generation_after
        )


def test_the_journal_outlives_the_coordinator(tmp_path):
    flags = ("--data-dir", str(tmp_path), "--group-min-session-timeout-ms", "500",
             "--group-initial-rebalance-delay-ms", "100")  # fmt: skip
    with Process(*flags) as server, grpc.insecure_channel(server.address) as channel:
        gather(Client(channel, "one"), Client(channel, "two"))
        before = explained(server)
        server.kill()
    with Process(*flags) as server:
        assert explained(server) == before


def test_a_recording_makes_the_same_journal_again(tmp_path):
    flags = ("--group-min-session-timeout-ms", "500", "--group-initial-rebalance-delay-ms", "100",
             "--shards", "1", "--record-dir", str(tmp_path))  # fmt: skip
    with Process(*flags) as server, grpc.insecure_channel(server.address) as channel:
        one, two = Client(channel, "one"), Client(channel, "two")
        gather(one, two)
        two.leave("for now")
        gather(one)
        two.session_ms = 6_000  # Time for its sync, on a slow machine.
        gather(two, one, slow=one, by_s=0.3)
        with GroupAdmin(server.address) as admin:  # Until `two` has died.
            while admin.describe_group(GROUP).group_state == "Stable":
                one.beat()
                time.sleep(0.05)
        gather(one)
        live = json.loads(command(server, "explain", GROUP, "--last", "99", "-o", "json"))
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
    (recording,) = tmp_path.iterdir()
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert main(["replay", str(recording), "-o", "json"]) == 0, err.getvalue()
    assert "1 states compared: the same state" in err.getvalue()
    assert json.loads(out.getvalue())[::-1] == live
    lines = recording.read_text().splitlines()
    beats = [n for n, line in enumerate(lines) if '"LeaveGroup"' in line]
    (tmp_path / "changed").write_text("\n".join(lines[: beats[0]] + lines[beats[0] + 1 :]))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main(["replay", str(tmp_path / "changed")]) == 1
