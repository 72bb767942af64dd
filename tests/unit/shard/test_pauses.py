"""A session's clock stands still while the node does not listen, and only then."""

from __future__ import annotations

import json

from coordinator.core.pauses import Pause
from coordinator.core.values.events import MemberEvicted
from coordinator.core.values.ids import CallId
from coordinator.core.values.requests import Heartbeat
from coordinator.runtime.inputs import from_json, to_json
from coordinator.shard.inputs import Tick
from tests.kit.hosted_shard import HostedShard

SESSION_MS = 30_000  # Session timeout of the shard's members.


class PausedShard(HostedShard):
    """Ticks with the pauses that a node has seen."""

    pauses: tuple[Pause, ...] = ()

    def step(self, event) -> None:
        super().step(Tick(self.pauses) if isinstance(event, Tick) else event)

    def deaths(self) -> list[str]:
        return [event.member_id for event in self.events if isinstance(event, MemberEvicted)]


def stable() -> PausedShard:
    """One member, heard of just now."""
    host = PausedShard()
    joined = host.join("c")
    host.pass_time(3_000)
    host.store()
    host.sync(joined)
    host.store()
    return host


def beat(host: PausedShard, at_ms: int) -> None:
    host.pass_time(at_ms - host.now_ms)
    (member_id,) = host.shard.machine.groups["g"].members
    host.step(
        Heartbeat(
            call_id=CallId(at_ms),
            group_id="g",
            member_id=member_id,
            instance_id=None,
            generation=1,
        )
    )


def dies_at(host: PausedShard) -> int:
    """The millisecond in which the member is declared dead."""
    while not host.deaths():
        assert host.deadline_ms is not None
        host.pass_time(host.deadline_ms - host.now_ms)
    return host.now_ms


def test_without_pauses_a_session_ends_when_it_always_did():
    host = stable()
    heard_ms = host.now_ms
    assert dies_at(host) == heard_ms + SESSION_MS


def test_a_pause_makes_a_session_that_much_longer_and_no_more():
    host = stable()
    heard_ms = host.now_ms
    host.pauses = (Pause(heard_ms + 1_000, heard_ms + 8_000),)
    assert dies_at(host) == heard_ms + SESSION_MS + 7_000


def test_two_pauses_add_up():
    host = stable()
    heard_ms = host.now_ms
    host.pauses = (
        Pause(heard_ms + 1_000, heard_ms + 8_000),
        Pause(heard_ms + SESSION_MS, heard_ms + SESSION_MS + 2_000),
    )
    assert dies_at(host) == heard_ms + SESSION_MS + 9_000


def test_a_pause_that_begins_in_the_grace_of_another_counts_too():
    host = stable()
    heard_ms = host.now_ms
    host.pauses = (Pause(heard_ms + 1_000, heard_ms + 8_000),)
    host.pass_time(SESSION_MS)
    assert not host.deaths()
    host.pauses += (Pause(heard_ms + SESSION_MS + 1_000, heard_ms + SESSION_MS + 3_000),)
    assert dies_at(host) == heard_ms + SESSION_MS + 9_000


def test_a_pause_before_the_last_beat_does_not_count():
    host = stable()
    host.pauses = (Pause(host.now_ms, host.now_ms + 8_000),)
    heard_ms = host.now_ms + 8_000
    beat(host, heard_ms)
    assert dies_at(host) == heard_ms + SESSION_MS


def test_a_beat_in_a_pause_counts_from_then():
    host = stable()
    began_ms = host.now_ms
    host.pauses = (Pause(began_ms, began_ms + 60_000),)
    beat(host, began_ms + 50_000)
    assert dies_at(host) == began_ms + 50_000 + SESSION_MS + 10_000


def test_a_stall_longer_than_the_session_costs_nobody_its_place():
    host = stable()
    heard_ms = host.now_ms
    host.now_ms = heard_ms + 5 * SESSION_MS
    host.pauses = (Pause(heard_ms, heard_ms + 6 * SESSION_MS),)
    host.step(Tick())
    assert not host.deaths()
    beat(host, heard_ms + 5 * SESSION_MS + 10)
    host.pass_time(SESSION_MS)
    assert not host.deaths()


def test_a_tick_with_pauses_is_recorded_and_read_back():
    tick = Tick((Pause(1, 2), Pause(5, 9)))
    assert from_json(json.loads(json.dumps(to_json(tick)))) == tick
    assert from_json({"Tick": {}}) == Tick()  # As recorded before there were pauses.
