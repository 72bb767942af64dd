"""Thousands of sessions that end in one millisecond: in parts, and with the same result."""

from __future__ import annotations

import pytest

from coordinator.core.config import GroupConfig
from coordinator.core.values.events import EvictionCause, JoinPhaseCompleted, MemberEvicted
from coordinator.core.values.ids import CallId, ShardId
from coordinator.core.values.records import GroupMetadata, MemberRecord
from coordinator.core.values.requests import Heartbeat
from coordinator.runtime.payloads import PAYLOADS
from coordinator.runtime.recording import RecordingShard
from coordinator.runtime.replaying import replay
from coordinator.shard import shard as shards
from coordinator.shard.followers import AckPolicy
from coordinator.shard.inputs import Activate, Tick, Unload
from coordinator.shard.shard import ADVANCE_SLICE, Shard
from coordinator.testing.virtual import CountingIds
from tests.kit import commands
from tests.kit.steps import restored, stepped

SESSION_MS, REBALANCE_MS = 10_000, 15_000
MEMBERS = 3 * ADVANCE_SLICE
START_MS = 1_000
END_MS = START_MS + SESSION_MS


def group(group_id: str, members: int) -> GroupMetadata:
    records = tuple(
        MemberRecord(f"{group_id}-{n:04}", None, "c", "/h", REBALANCE_MS, SESSION_MS, b"", b"mine")
        for n in range(members)
    )
    return GroupMetadata(group_id, 5, "work", "range", records[0].member_id, 0, records)


class CrowdedShard:
    """A shard; members of the groups given were last seen of at the start."""

    def __init__(self, shard: Shard | None = None, **groups: int) -> None:
        self.shard = shard or Shard(GroupConfig(), CountingIds(), PAYLOADS, now_ms=0)
        self.shard.replay([group(*item) for item in groups.items()], 0)
        restored(self.shard, START_MS, sequence=1, next_offset=len(groups))
        while not self.shard.is_active:
            stepped(self.shard, Activate(), START_MS)
        self.calls = 0
        self.events = []
        self.replies = {}

    def step(self, event, now_ms):
        effects = stepped(self.shard, event, now_ms)
        self.events += effects.events
        self.replies.update(effects.replies)
        return effects

    def tick_until_done(self, now_ms) -> int:
        steps = 0
        while True:
            effects = self.step(Tick(), now_ms)
            steps += 1
            if effects.next_deadline_ms is None or effects.next_deadline_ms > now_ms:
                return steps
            assert steps < 1_000

    def beat(self, group_id, number, now_ms):
        self.calls += 1
        self.step(
            Heartbeat(
                call_id=CallId(self.calls),
                group_id=group_id,
                generation=5,
                member_id=f"{group_id}-{number:04}",
            ),
            now_ms,
        )
        return self.replies[CallId(self.calls)].error.name

    def join(self, group_id, number, now_ms):
        self.calls += 1
        self.step(
            commands.join(
                self.calls,
                group_id,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=f"{group_id}-{number:04}",
                protocol_type="work",
                protocols=(("range", b"new"),),
                require_known_member_id=True,
            ),
            now_ms,
        )

    def ended_phases(self):
        return {e.group_id: e.members for e in self.events if isinstance(e, JoinPhaseCompleted)}

    def evicted(self):
        return [event.member_id for event in self.events if isinstance(event, MemberEvicted)]


def test_a_step_ends_some_sessions_and_asks_to_be_ticked_again_at_once():
    crowded = CrowdedShard(g=MEMBERS)
    effects = crowded.step(Tick(), END_MS)
    while not crowded.evicted():  # They come down a level first.
        effects = crowded.step(Tick(), END_MS)
    assert len(crowded.evicted()) <= ADVANCE_SLICE
    assert effects.next_deadline_ms == END_MS
    assert crowded.shard.timer.is_behind


def test_in_the_end_all_are_gone_in_their_order():
    crowded = CrowdedShard(g=MEMBERS)
    assert crowded.tick_until_done(END_MS) > 3
    assert crowded.evicted() == [f"g-{n:04}" for n in range(MEMBERS)]
    assert crowded.shard.stats().members == 0


def test_a_member_that_is_heard_of_between_two_steps_stays():
    crowded = CrowdedShard(g=MEMBERS)
    while not crowded.evicted():
        crowded.step(Tick(), END_MS)
    assert crowded.beat("g", MEMBERS - 1, END_MS) == "REBALANCE_IN_PROGRESS"
    crowded.tick_until_done(END_MS)
    assert len(crowded.evicted()) == MEMBERS - 1
    assert crowded.shard.stats().members == 1


def test_a_join_phase_ends_after_the_sessions_that_end_with_it():
    """The phase is the first to be due, and more sessions than fit into a step are due with it."""
    crowded = CrowdedShard(a=3, b=MEMBERS)
    crowded.join("a", 0, START_MS)  # The others of `a` have REBALANCE_MS to follow.
    end_ms = START_MS + REBALANCE_MS
    crowded.tick_until_done(end_ms - SESSION_MS)
    for group_id, members in (("a", 3), ("b", MEMBERS)):
        for number in range(members):
            crowded.beat(group_id, number, end_ms - SESSION_MS)
    crowded.tick_until_done(end_ms - 1)
    assert crowded.evicted() == []
    while not crowded.evicted():
        crowded.step(Tick(), end_ms)
    assert crowded.shard.stats().delayed["join"] < 2, "the phase of `a` was due in this step"
    assert crowded.ended_phases() == {}, "and has not ended yet"
    crowded.tick_until_done(end_ms)
    assert crowded.ended_phases() == {"a": 1, "b": 0}
    causes = {e.cause for e in crowded.events if isinstance(e, MemberEvicted)}
    assert causes == {EvictionCause.SESSION_EXPIRED}


def test_a_recording_runs_again_part_by_part_to_the_same_state(tmp_path):
    file = tmp_path / "shard.jsonl"
    ids, acks = CountingIds(), AckPolicy(node=1)
    shard = RecordingShard(file, ShardId(0), GroupConfig(), ids, PAYLOADS, now_ms=0, acks=acks)
    crowded = CrowdedShard(shard, a=3, b=MEMBERS)
    while len(crowded.evicted()) < ADVANCE_SLICE:
        crowded.step(Tick(), END_MS)
    assert crowded.shard.timer.is_behind
    crowded.beat("b", MEMBERS - 1, END_MS)
    steps = crowded.tick_until_done(END_MS)
    assert steps > 1
    crowded.step(Unload(), END_MS)
    replayed = replay(file.read_text().splitlines())
    assert (replayed.checked, replayed.differences) == (1, [])


@pytest.mark.parametrize("limit", [7, 200, 10**9])
def test_the_parts_end_where_one_large_step_would(limit, monkeypatch):
    def outcome():
        crowded = CrowdedShard(a=3, b=MEMBERS, c=40)
        crowded.join("a", 0, START_MS)
        for number in range(0, 40, 2):
            assert crowded.beat("c", number, START_MS + 5_000) == "NONE"
        for now_ms in (END_MS - 1, END_MS, END_MS + 4_000, END_MS + 5_000, END_MS + 50_000):
            crowded.tick_until_done(now_ms)
        return (
            sorted(crowded.evicted()),
            crowded.shard.stats().groups,
            sorted(map(repr, crowded.replies)),
        )

    expected = outcome()
    monkeypatch.setattr(shards, "ADVANCE_SLICE", limit)
    assert outcome() == expected
