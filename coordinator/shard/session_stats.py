"""Statistics of the session groups of a shard. Any thread may ask, so tables are copied first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from coordinator.core.sessions.group import SessionGroup
from coordinator.shard.stats import SessionStats


def shortest_lease_ms(groups: Iterable[SessionGroup]) -> int:
    """The shortest lease that a member was told; 0: there is no member."""
    leases = (
        member.told_lease_ms or member.lease_ms
        for group in groups
        for member in list(group.members.values())
    )
    return min(leases, default=0)


def session_stats(groups: Iterable[SessionGroup]) -> SessionStats:
    """Numbers over groups; linear in members and open hand-offs."""
    groups = list(groups)
    members = suspects = waiting = 0
    partitions: Counter[str] = Counter()
    for group in groups:
        live = list(group.members.values())
        members += len(live)
        suspects += sum(member.is_suspect for member in live)
        waiting += len(group.waiting)
        declared: dict[str, int] = {}
        for member in live:
            for topic, count in member.record.topics:
                declared[topic] = max(count, declared.get(topic, 0))
        partitions.update(_partitions(group, declared))
    return SessionStats(members, suspects, waiting, dict(partitions), shortest_lease_ms(groups))


def _partitions(group: SessionGroup, declared: Mapping[str, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, topic in list(group.topics.items()):
        phases = Counter(handoff.phase.value for handoff in list(topic.open.values()))
        kept = len(topic.kept)
        holders = topic.holders
        held = len(holders) - holders.count("")
        found.update(phases)
        found["kept"] += kept
        found["held"] += held - phases.total() + phases["copy"]
        # Partitions that nobody declares any more are in the columns too.
        free = min(len(holders), declared.get(name, 0)) - held - kept - phases["copy"]
        found["free"] += max(0, free)
    return found
