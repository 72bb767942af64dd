"""Resource limits of a node: members, groups, parked calls, streams, memory.

A call beyond a limit is refused with RESOURCE_EXHAUSTED before it costs anything; the message names
the setting, and says when to try again where that can help. Existing members and groups are never
removed, and heartbeats, leaves and commits of existing groups are never refused for a limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from coordinator.core.values.requests import CommitOffsets, JoinGroup, Request, SyncGroup
from coordinator.core.values.session_messages import Attach
from coordinator.service.refusals import Exhausted, Full
from coordinator.settings.sections import LimitsConfig

MIB = 1024 * 1024


class NodeUsage(Protocol):
    """Current usage of a node."""

    @property
    def memory_bytes(self) -> int: ...
    def has_static_member(self, group_id: str, instance_id: str | None) -> bool | None: ...
    def has_session(self, group_id: str, incarnation: str) -> bool | None: ...
    def group_count(self) -> int: ...
    def members_of(self, client_host: str) -> int: ...


@dataclass(slots=True)
class Quotas:
    """Limits in force. `parked`, `streams`: the number of parked calls and open streams."""

    config: LimitsConfig
    usage: NodeUsage
    parked: int = 0
    streams: int = 0

    def check(self, request: Request) -> None:
        """Refuse a command that is beyond a limit.

        Raises:
            Exhausted: a limit is reached.
        """
        match request:
            case JoinGroup():
                self._check_join(request)
            case Attach():
                self._check_attach(request)
            case SyncGroup():
                most = self.config.max_assignment_bytes
                longest = max((len(a) for _, a in request.assignments), default=0)
                if longest > most:
                    raise Exhausted(
                        f"an assignment of {longest} bytes; max_assignment_bytes is {most}", 0
                    )
            case CommitOffsets() if self.usage.has_static_member(request.group_id, None) is None:
                self._check_new_group()
            case _:
                pass

    def parking(self, request: object) -> _Parking:
        """Count a call as parked inside the context.

        Joins and syncs wait for other members, and are refused beyond the limit; calls that wait
        for the log alone are only counted.

        Raises:
            Exhausted: `max_parked_calls` is reached.
        """
        most = self.config.max_parked_calls
        if self.parked >= most and isinstance(request, JoinGroup | SyncGroup):
            raise Exhausted(f"{most} calls are parked already (max_parked_calls)")
        return _Parking(self)

    def streaming(self, *, is_of_member: bool = False) -> _Streaming:
        """Count a stream as open inside the context.

        Args:
            is_of_member: memory is checked with its Attach, which a member that is there already
                may send.
        Raises:
            Exhausted: on entry; `max_streams` or `max_memory_mib` is reached.
        """
        return _Streaming(self, is_of_member=is_of_member)

    def open_stream(self, *, is_of_member: bool) -> None:
        """See `streaming`, whose context closes it."""
        most = self.config.max_streams
        if self.streams >= most:
            raise Exhausted(f"{most} streams are open already (max_streams)")
        if not is_of_member:
            self.check_memory()
        self.streams += 1

    def check_memory(self) -> None:
        """Refuse a newcomer while the node uses too much memory.

        Raises:
            Exhausted: `max_memory_mib` is reached.
        """
        most = self.config.max_memory_mib
        if most and self.usage.memory_bytes > most * MIB:
            raise Exhausted(
                f"the node uses {self.usage.memory_bytes // MIB} MiB; max_memory_mib is {most}"
            )

    # --- Inside ---

    def _check_join(self, request: JoinGroup) -> None:
        config = self.config
        size, most = sum(len(m) for _, m in request.protocols), config.max_member_metadata_bytes
        if size > most:
            raise Exhausted(f"metadata of {size} bytes; max_member_metadata_bytes is {most}", 0)
        seat = self.usage.has_static_member(request.group_id, request.instance_id)
        if request.member_id or seat:
            return
        self._check_newcomer(request.client_host, is_new_group=seat is None)

    def _check_attach(self, attach: Attach) -> None:
        size, most = stored_bytes(attach), self.config.max_member_metadata_bytes
        if size > most:
            raise Exhausted(f"metadata of {size} bytes; max_member_metadata_bytes is {most}", 0)
        seat = self.usage.has_session(attach.group_id, attach.incarnation)
        if not seat:
            self._check_newcomer(attach.client_host, is_new_group=seat is None)

    def _check_newcomer(self, client_host: str, *, is_new_group: bool) -> None:
        if is_new_group:
            self._check_new_group()
        self.check_memory()
        most = self.config.max_members_per_host
        if most and self.usage.members_of(client_host) >= most:
            raise Full(f"{most} members come from {client_host} already (max_members_per_host)")

    def _check_new_group(self) -> None:
        most = self.config.max_groups
        if most and self.usage.group_count() >= most:
            raise Full(f"there are {most} groups already (max_groups)")


def stored_bytes(attach: Attach) -> int:
    """Approximate bytes that an Attach stores for its member; each item counts 8 extra."""
    texts = (attach.name, attach.client_id, attach.rack, attach.revision, attach.deployment)
    return sum(len(name) + 8 for name, _ in attach.topics) + sum(map(len, texts))


class _Parking:
    """Context of a parked call; a generator's costs each call 1 us more."""

    __slots__ = ("_limits",)

    def __init__(self, limits: Quotas) -> None:
        self._limits = limits

    def __enter__(self) -> None:
        self._limits.parked += 1

    def __exit__(self, *_: object) -> None:
        self._limits.parked -= 1


class _Streaming:
    """Context of an open stream. It is kept as long as the stream, and a generator is larger."""

    __slots__ = ("_is_of_member", "_limits")

    def __init__(self, limits: Quotas, *, is_of_member: bool) -> None:
        self._limits = limits
        self._is_of_member = is_of_member

    def __enter__(self) -> None:
        self._limits.open_stream(is_of_member=self._is_of_member)

    def __exit__(self, *_: object) -> None:
        self._limits.streams -= 1
