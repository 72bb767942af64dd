"""Calls beyond a limit are refused before they cost anything; existing members go on."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from coordinator.core.values.ids import CallId
from coordinator.core.values.requests import CommitOffsets, Heartbeat, JoinGroup, SyncGroup
from coordinator.core.values.session_messages import Attach
from coordinator.service.quotas import MIB, Quotas
from coordinator.service.refusals import Exhausted
from coordinator.settings.sections import LimitsConfig

CALL = CallId(1)


@dataclass
class Node:
    """A node as `Quotas` sees it."""

    groups: dict[str, set[str]] = field(default_factory=dict)
    hosts: dict[str, int] = field(default_factory=dict)
    memory_bytes: int = 0

    def has_static_member(self, group_id, instance_id):
        group = self.groups.get(group_id)
        return None if group is None else instance_id in group

    def has_session(self, group_id, incarnation):
        group = self.groups.get(group_id)
        return None if group is None else incarnation in group

    def group_count(self) -> int:
        return len(self.groups)

    def members_of(self, client_host) -> int:
        return self.hosts.get(client_host, 0)


def join(member_id="", group="g", instance=None, metadata=b"") -> JoinGroup:
    return JoinGroup(
        call_id=CALL, group_id=group, session_timeout_ms=1, rebalance_timeout_ms=1,
        member_id=member_id, protocol_type="t", protocols=(("a", metadata), ("b", metadata)),
        instance_id=instance, client_host="/h",
    )  # fmt: skip


def attach(group="g", incarnation="new", **fields) -> Attach:
    return Attach(call_id=CALL, group_id=group, incarnation=incarnation, client_host="/h", **fields)


def refused(limits: Quotas, request) -> str:
    with pytest.raises(Exhausted) as error:
        limits.check(request)
    return str(error.value)


def test_a_group_too_many_is_not_made_and_those_there_are_used():
    node = Node(groups={"a": set(), "b": set()})
    limits = Quotas(LimitsConfig(max_groups=2), node)
    assert "max_groups" in refused(limits, join(group="c"))
    assert "max_groups" in refused(limits, attach("c"))
    limits.check(attach("a"))
    commit = CommitOffsets(call_id=CALL, group_id="c", partitions=())
    assert "max_groups" in refused(limits, commit)
    limits.check(join(group="a"))
    limits.check(CommitOffsets(call_id=CALL, group_id="a", partitions=()))
    Quotas(LimitsConfig(), node).check(join(group="c"))


def test_a_host_gets_so_many_seats_and_keeps_them():
    node = Node(groups={"g": {"i1"}}, hosts={"/h": 3})
    limits = Quotas(LimitsConfig(max_members_per_host=3), node)
    assert "max_members_per_host" in refused(limits, join())
    assert "max_members_per_host" in refused(limits, join(instance="i2"))
    limits.check(join(member_id="there already"))
    limits.check(join(instance="i1"))
    assert "max_members_per_host" in refused(limits, attach())
    limits.check(attach(incarnation="i1"))
    limits.check(Heartbeat(call_id=CALL, group_id="g", generation=1, member_id="m"))


def test_when_memory_is_short_nobody_new_is_let_in():
    node = Node(groups={"g": set()}, memory_bytes=101 * MIB)
    limits = Quotas(LimitsConfig(max_memory_mib=100), node)
    assert "max_memory_mib" in refused(limits, join())
    limits.check(join(member_id="m"))
    node.groups["g"].add("there already")
    assert "max_memory_mib" in refused(limits, attach())
    limits.check(attach(incarnation="there already"))
    with limits.streaming(is_of_member=True):
        pass
    limits.check(CommitOffsets(call_id=CALL, group_id="g", partitions=()))
    with pytest.raises(Exhausted, match="max_memory_mib"), limits.streaming():
        pass
    node.memory_bytes = 99 * MIB
    limits.check(join())


def test_metadata_and_assignments_have_a_length_and_waiting_does_not_help():
    limits = Quotas(
        LimitsConfig(max_member_metadata_bytes=2_000, max_assignment_bytes=1_500), Node()
    )
    limits.check(join(metadata=bytes(1_000)))
    with pytest.raises(Exhausted, match="max_member_metadata_bytes") as error:
        limits.check(join(metadata=bytes(1_001)))
    assert error.value.retry_after_s == 0
    for size, fits in ((1_500, True), (1_501, False)):
        sync = SyncGroup(
            call_id=CALL, group_id="g", generation=1, member_id="m",
            assignments=(("m", b""), ("n", bytes(size))),
        )  # fmt: skip
        if fits:
            limits.check(sync)
        else:
            assert "max_assignment_bytes" in refused(limits, sync)


def test_a_stream_s_place_is_given_back_whatever_happens():
    limits = Quotas(LimitsConfig(max_streams=1), Node())
    with limits.streaming(), pytest.raises(Exhausted, match="max_streams"), limits.streaming():
        pass
    with pytest.raises(ValueError, match="gone"), limits.streaming():
        raise ValueError("gone")
    with limits.streaming():
        pass


def test_a_parked_call_s_place_is_given_back():
    limits = Quotas(LimitsConfig(max_parked_calls=1), Node())
    with (
        limits.parking(join()),
        pytest.raises(Exhausted, match="max_parked_calls"),
        limits.parking(join()),
    ):
        pass
    assert limits.parked == 0
    with limits.parking(join()):
        assert limits.parked == 1


def test_a_commit_is_not_refused_because_joins_are_parked():
    limits = Quotas(LimitsConfig(max_parked_calls=1), Node())
    commit = CommitOffsets(call_id=CALL, group_id="g", partitions=())
    with limits.parking(join()), limits.parking(commit), limits.parking(None):
        assert limits.parked == 3


def test_what_is_stored_of_a_session_member_is_limited():
    limits = Quotas(LimitsConfig(max_member_metadata_bytes=1_024), Node())
    limits.check(attach(topics=(("t" * 92, 1),) * 10))
    assert "max_member_metadata_bytes" in refused(limits, attach(topics=(("t" * 92, 1),) * 11))
    assert "max_member_metadata_bytes" in refused(limits, attach(revision="r" * 1_025))
