"""Kafka's requests as the pipeline sees them: `KafkaCall`, and the kind of each API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from coordinator.core.values.ids import CallId
from coordinator.kafka import apis
from coordinator.kafka.apis import Api
from coordinator.service import calls
from coordinator.service.calls import Call, CallingPeer, Kind

KINDS: dict[Api, Kind] = {
    apis.FIND_COORDINATOR: calls.FIND_COORDINATOR,
    apis.JOIN_GROUP: calls.JOIN_GROUP,
    apis.SYNC_GROUP: calls.SYNC_GROUP,
    apis.HEARTBEAT: calls.HEARTBEAT,
    apis.LEAVE_GROUP: calls.LEAVE_GROUP,
    apis.OFFSET_COMMIT: calls.OFFSET_COMMIT,
    apis.OFFSET_FETCH: calls.OFFSET_FETCH,
    apis.OFFSET_DELETE: calls.OFFSET_DELETE,
    apis.LIST_GROUPS: calls.LIST_GROUPS,
    apis.DESCRIBE_GROUPS: calls.DESCRIBE_GROUPS,
    apis.DELETE_GROUPS: calls.DELETE_GROUPS,
    apis.METADATA: Kind("Metadata", is_throttled=False),
    apis.DESCRIBE_CLUSTER: calls.DESCRIBE_CLUSTER,
    apis.DESCRIBE_CONFIGS: Kind("DescribeConfigs"),
    apis.LIST_OFFSETS: Kind("ListOffsets"),
    apis.PRODUCE: Kind("Produce"),
    apis.FETCH: Kind("Fetch"),
    apis.SASL_HANDSHAKE: Kind("SaslHandshake", is_open=True, is_throttled=False),
    apis.SASL_AUTHENTICATE: Kind("SaslAuthenticate", is_throttled=False),
}
"""Kinds by API. An API without one is answered before anybody has authenticated."""


NewKafkaCallId = Callable[[], CallId]


class KafkaCall(Call):
    """A request over Kafka's wire, or a part of one that is about some of its groups.

    Args:
        caller: of the connection.
        groups: those that it names; None among them: no group in particular.
        whole: the request of which it is a part; None: it is a whole one.
    """

    __slots__ = ("_caller", "_groups", "_member_id", "_whole", "throttle_ms")
    system = "kafka"
    is_paid_later = True

    def __init__(
        self,
        kind: Kind,
        caller: CallingPeer,
        groups: Sequence[str | None] = (None,),
        member_id: str = "",
        whole: KafkaCall | None = None,
    ) -> None:
        super().__init__(kind, f"Kafka {kind.name}")
        self._whole = whole
        self._caller = caller
        self._groups = groups
        self._member_id = member_id
        self.throttle_ms = 0
        """Throttle time in its answer, in milliseconds; the connection is not read for so long."""

    @property
    def caller(self) -> CallingPeer:
        return self._caller

    @property
    def groups(self) -> Sequence[str | None]:
        return self._groups

    @property
    def member_id(self) -> str:
        return self._member_id

    def pause(self, seconds: float) -> None:
        """See `Call`: the pause of a request is the longest of its parts."""
        whole = self._whole or self
        whole.throttle_ms = max(whole.throttle_ms, round(1000 * seconds))

    def about(self, *groups: str) -> KafkaCall:
        """Return the part of the call that is about some of its groups."""
        if groups == tuple(self._groups):
            return self
        return KafkaCall(self.kind, self._caller, groups, self._member_id, self._whole or self)

    def question(self, group: str) -> KafkaCall:
        """Return a call by which to learn whether the caller may ask for a group.

        It does not count for the caller's calls a second.
        """
        kind = replace(self.kind, is_throttled=False)
        return KafkaCall(kind, self._caller, (group,), self._member_id)
