"""Invariants of a session group, which hold between any two inputs.

`check` looks at one moment. `TokenHistory` compares moments: tokens rise over steps, restarts and
groups that were deleted and made again. That timers are armed and writes are on their way is the
shard's to know: `coordinator.shard.invariants`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from coordinator.core.config import GroupConfig
from coordinator.core.sessions.group import SessionGroup
from coordinator.core.sessions.handoff import phases, successors
from coordinator.core.sessions.holdings import Handoff
from coordinator.core.sessions.leave import leaving
from coordinator.core.sessions.partition import NO_STATE
from coordinator.core.sessions.plan import scheduler
from coordinator.core.step import Numbers
from coordinator.core.values.errors import InvariantViolated
from coordinator.core.values.ids import NO_TIME, NO_TOKEN, TopicPartition
from coordinator.core.values.records import Phase


def check(group: SessionGroup, config: GroupConfig, now_ms: int) -> None:
    """Check all invariants of a group. Tests call it after every step.

    Linear in members and partitions, and quadratic in open hand-offs.

    Raises:
        InvariantViolated: names the invariant that does not hold.
    """
    _check_members(group)
    _check_holdings(group)
    for partition, handoff in group.open_handoffs():
        _check_handoff(group, partition, handoff)
    _check_states(group)
    _check_nothing_is_undecided(group, now_ms)
    _check_free_partitions_are_planned(group, config, now_ms)
    _expect(group, group.state is group.current_state(), "7: the state is not the current one")


def _check_members(group: SessionGroup) -> None:
    names = {m.record.name: m.member_id for m in group.members.values() if m.record.name}
    named = [m for m in group.members.values() if m.record.name]
    _expect(group, len(names) == len(named), "1: two members have one name")
    _expect(group, names == group.names, "1: the index of names is wrong")
    _expect(
        group,
        all(key == member.member_id for key, member in group.members.items()),
        "1: a member stands under another id",
    )
    incarnations = [m.record.incarnation for m in group.members.values() if not m.is_ended]
    _expect(
        group, len(set(incarnations)) == len(incarnations), "1: one incarnation has two sessions"
    )
    for name, queued in group.waiting.items():
        _expect(group, queued.record.name == name, "1: a waiting process stands under another name")
        _expect(group, queued.member_id not in group.members, "1: a member waits for its name")
        _expect(
            group, queued.record.incarnation not in incarnations, "1: a process waits for itself"
        )
    living = {member.member_id for member in group.members.values() if not member.is_ended}
    _expect(group, group.overdue <= living, "1: a lease that has ended is to end")
    for member in group.members.values():
        if not member.is_ended:
            _expect(group, member.last_beat_ms != NO_TIME, "1: a member's lease does not run")
            _expect(group, not leaving.has_drained(group, member), "1: a drained member stays")


def _check_holdings(group: SessionGroup) -> None:
    held: dict[str, dict[str, set[int]]] = {}
    tokens: set[int] = set()
    for name, topic in group.topics.items():
        _expect(group, len(topic.holders) == len(topic.tokens), "2: columns differ in length")
        for partition, (holder, token) in enumerate(zip(topic.holders, topic.tokens, strict=True)):
            _expect(group, bool(holder) == (token != NO_TOKEN), "2: a holder without a token")
            if holder:
                held.setdefault(holder, {}).setdefault(name, set()).add(partition)
                _expect(group, token not in tokens, "2: a token has two grants")
                tokens.add(token)
        for partition, reservation in topic.reserved.items():
            _expect(group, not group.holder((name, partition)), "2: reserved, and held")
            _expect(group, partition not in topic.open, "2: reserved, and handed over")
            _expect(group, reservation.name in group.reserved_names, "2: reserved without an end")
    _expect(group, held.keys() <= group.members.keys(), "2: a stranger holds a partition")
    index = {
        member_id: {topic: partitions for topic, partitions in by_topic.items() if partitions}
        for member_id, by_topic in group.held.items()
    }
    _expect(
        group,
        {member_id: by_topic for member_id, by_topic in index.items() if by_topic} == held,
        "2: the index of holdings is wrong",
    )
    for name in group.reserved_names:
        _expect(group, name not in group.names, "2: reserved for a name that has a member")
    for topic_partition, state in group.partition_states.items():
        is_ended = state.release is not None and state.release.token != group.token(topic_partition)
        _expect(group, not is_ended, "2: released under a token that has ended")
    preparing: dict[str, set[TopicPartition]] = {}
    for topic_partition, handoff in group.open_handoffs():
        if handoff.is_prepared_for:
            preparing.setdefault(handoff.successor, set()).add(topic_partition)
    recorded = {
        member_id: partitions for member_id, partitions in group.preparing.items() if partitions
    }
    _expect(group, recorded == preparing, "2: the index of successors is wrong")


def _check_handoff(group: SessionGroup, partition: TopicPartition, handoff: Handoff) -> None:
    _expect(group, handoff.handoff_id > 0, f"3: a hand-off of {partition} without an id")
    holder = group.holder(partition)
    _expect(group, holder == handoff.source, f"3: the source of {partition} does not hold it")
    if handoff.phase is Phase.COPY:
        _expect(group, not holder, f"3: {partition} is copied while it is held")
    else:
        _expect(group, bool(holder), f"3: nobody holds {partition}, which is handed over")
    if handoff.phase in (Phase.PREPARE, Phase.COPY):
        _expect(group, bool(handoff.successor), f"3: nobody prepares for {partition}")
    _expect(
        group,
        not handoff.successor or handoff.successor != holder,
        f"3: {partition} is handed over to its holder",
    )
    _expect(
        group,
        handoff.deadline_ms != NO_TIME or group.partition_state(partition).writes_pending > 0,
        f"3: the phase of {partition} has no end",
    )


def _check_states(group: SessionGroup) -> None:
    for partition, state in group.partition_states.items():
        _expect(group, not state.is_empty, f"4: {partition} has a state, and nothing happens to it")
        _expect(group, state.writes_pending >= 0, f"4: nothing is written about {partition}")
    written = sum(state.writes_pending > 0 for state in group.partition_states.values())
    _expect(group, written == group.written_partitions, "4: the count of pending writes is wrong")
    _expect(group, NO_STATE.is_empty, "4: something happens to all partitions at rest")
    arriving = {
        attach.name for attach in group.arriving.values() if attach is not None and attach.name
    }
    _expect(group, arriving <= group.arriving_names, "4: a name is not known to be on its way")


def _check_nothing_is_undecided(group: SessionGroup, now_ms: int) -> None:
    """Reconciling again would change nothing: no order and no message waits for a wake-up."""
    released = {
        partition
        for partition, state in group.partition_states.items()
        if state.release is not None
    }
    for partition in (
        released | {partition for partition, _ in group.open_handoffs()}
    ) - group.refused_writes:
        if group.partition_state(partition).writes_pending:
            continue
        handoff = group.handoff(partition)
        leaver = None if handoff is None else group.members.get(handoff.successor)
        if leaver is not None and leaver.is_ended:
            continue  # Another one is looked for when its end is durable.
        record = phases.decide(group, partition, now_ms, Numbers())
        _expect(group, record is None, f"5: nobody has decided {record}")


def _check_free_partitions_are_planned(
    group: SessionGroup, config: GroupConfig, now_ms: int
) -> None:
    if scheduler.due(group, config) != NO_TIME or group.planning.is_busy:
        return
    for name, count in group.declared().items():
        for partition in range(count):
            topic_partition = name, partition
            if _is_free(group, topic_partition) and (who := _somebody_for(group, topic_partition)):
                _expect(
                    group,
                    condition=False,
                    message=f"6: {topic_partition} is free, {who} may have it",
                )


def _is_free(group: SessionGroup, partition: TopicPartition) -> bool:
    return (
        not group.holder(partition)
        and group.handoff(partition) is None
        and not group.partition_state(partition).writes_pending
        and partition[1] not in group.topics[partition[0]].reserved
    )


def _somebody_for(group: SessionGroup, partition: TopicPartition) -> str:
    loads = successors.Loads(group)
    for member_id, member in group.members.items():
        if successors.may_get(group, partition, member_id) and loads.capacity_of(member) > 0:
            return member_id
    return ""


def _held(group: SessionGroup) -> Iterator[tuple[TopicPartition, str]]:
    for name, topic in group.topics.items():
        for partition, holder in enumerate(topic.holders):
            if holder:
                yield (name, partition), holder


class TokenHistory:
    """Tokens of grants seen so far, over all groups of a shard and all of its owners."""

    def __init__(self) -> None:
        self._owners: dict[int, tuple[str, TopicPartition, str]] = {}
        self._last: dict[tuple[str, TopicPartition], int] = {}

    def follow(self, groups: Iterable[SessionGroup]) -> None:
        """Compare the holdings with those seen before.

        Raises:
            InvariantViolated: a partition's token fell, or a token was used for two grants.
        """
        for group in groups:
            for partition, holder in _held(group):
                token = group.token(partition)
                key = group.group_id, partition
                before = self._last.get(key, NO_TOKEN)
                _expect(group, token >= before, f"8: the token of {partition} fell")
                self._last[key] = token
                grant = group.group_id, partition, holder
                owner = self._owners.setdefault(token, grant)
                _expect(group, owner == grant, f"8: token {token} of {owner} is now {grant}'s")


def _expect(group: SessionGroup, condition: bool, message: str) -> None:
    if not condition:
        raise InvariantViolated(f"group {group.group_id!r} in {group.state.value}: {message}")
