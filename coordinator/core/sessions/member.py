"""A member of a session group: what is durable of it, and what is known of it now."""

from __future__ import annotations

from dataclasses import dataclass, field

from coordinator.core.sessions.declared import NOTHING, DeclaredTopics
from coordinator.core.values.ids import NO_TIME, CallId, TopicPartition
from coordinator.core.values.records import SessionMemberStored
from coordinator.core.values.session_messages import Attach


@dataclass(slots=True)
class Unsent:
    """Orders sent in parts: the partitions still to be sent, the next one last."""

    version: int
    based_on: int
    answers: int
    partitions: list[TopicPartition]


@dataclass(slots=True)
class Mailbox:
    """Pending messages to a member, never more than the newest of each.

    version: of the orders sent last. dirty: partitions that changed since. sent: the version
    in which a partition that it holds was sent last, if it is not known to be applied. unsent: what
    is left of large orders. whole: the next one is the whole. ack: number of the newest
    heartbeat that is not acknowledged; -1: none. answers: number of the heartbeat that asked for
    the whole; -1: none did. attached: it has become a member, and does not know it.
    unread_since_ms: the oldest heartbeat whose acknowledgement was not taken by the transport;
    NO_TIME: there is none.
    """

    version: int = 0
    dirty: set[TopicPartition] = field(default_factory=set)
    sent: dict[TopicPartition, int] = field(default_factory=dict)
    unsent: Unsent | None = None
    whole: bool = False
    ack: int = -1
    answers: int = -1
    attached: bool = False
    unread_since_ms: int = NO_TIME

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to say."""
        has_pending = self.whole or self.dirty or self.unsent is not None or self.attached
        return self.ack < 0 and not has_pending

    def has_seen(self, partition: TopicPartition) -> bool:
        """True if the member has taken in all that concerns a partition."""
        return partition not in self.sent and partition not in self.dirty

    def note_applied(self, version: int) -> None:
        """The member has applied the orders up to this version."""
        if version >= self.version:
            self.sent.clear()
        else:
            self.sent = {
                partition: version_sent
                for partition, version_sent in self.sent.items()
                if version_sent > version
            }


@dataclass(slots=True)
class SessionMember:
    """One member. `record` is durable; everything else begins anew with an owner of the shard.

    declaration: topics of its record. decided: the newest record of it that was written, durable or
    on its way.
    stream_id: None: it has no stream, and is suspect, since `suspect_since_ms`.
    notified_lease_ms: what its newest Attached said, while that is shorter than its record says.
    shorter_lease_ms: the same from the time at which it is known to be received; 0: as the record.
    grace_ms: beyond its lease, after the shard was taken over.
    forced: partitions that it holds and that are not renewed.
    is_ended: its end is decided, whether or not its record is durable yet.
    must_drain: it stands still, and the policy takes its partitions away.
    progress_at_ms: when a heartbeat showed that its working side had got on since the one before,
    which came at got_on_after_ms.
    leaves_at_ms: deadline of its Leave(DRAIN).
    must_stop: it is forced to give up what it holds: that deadline has passed, or it stands still.
    goes_away: its end was by consent: what it says afterwards is not answered.
    wishes: settings of the group's policy that it asked for with its newest Attach.
    unanswered: Attach of a process that waits for the record that makes it a member.
    """

    record: SessionMemberStored
    declaration: DeclaredTopics = NOTHING
    decided: SessionMemberStored = field(init=False)
    stream_id: CallId | None = None
    stream_number: int = -1
    stream_since_ms: int = NO_TIME
    suspect_since_ms: int = NO_TIME
    number: int = 0
    notified_lease_ms: int = 0
    shorter_lease_ms: int = 0
    last_beat_ms: int = NO_TIME
    grace_ms: int = 0
    forced: set[TopicPartition] = field(default_factory=set)
    was_excused: bool = False
    is_ended: bool = False
    goes_away: bool = False
    is_ready: bool = True
    is_overloaded: bool = False
    is_stalled: bool = False
    must_drain: bool = False
    progress: int = 0
    progress_at_ms: int = NO_TIME
    got_on_after_ms: int = NO_TIME
    leaves_at_ms: int = NO_TIME
    must_stop: bool = False
    wishes: tuple[tuple[str, object], ...] = ()
    unanswered: Attach | None = None
    mailbox: Mailbox = field(default_factory=Mailbox)

    def __post_init__(self) -> None:
        self.decided = self.record

    @property
    def member_id(self) -> str:
        return self.record.member_id

    @property
    def name(self) -> str:
        """The name that decides ties: its own, or its id."""
        return self.record.name or self.record.member_id

    @property
    def is_suspect(self) -> bool:
        return self.stream_id is None

    @property
    def is_leaving(self) -> bool:
        """True if it hands over all that it has, whether or not that is on record yet."""
        return self.record.leaves or self.leaves_at_ms != NO_TIME

    @property
    def lease_ms(self) -> int:
        """The lease that counts."""
        return self.shorter_lease_ms or self.record.lease_ms

    @property
    def ends_at_ms(self) -> int:
        """Time at which its lease ends."""
        return self.last_beat_ms + self.lease_ms + self.grace_ms

    @property
    def receives(self) -> bool:
        """True if it may be given partitions."""
        return (
            not self.is_ended
            and not self.is_suspect
            and self.is_ready
            and not self.is_overloaded
            and not self.is_stalled
            and not self.decided.leaves
            and self.record.capacity > 0
        )

    def lose_stream(self, now_ms: int) -> None:
        """The stream has ended: the member is suspect until it opens another one."""
        self.stream_id, self.suspect_since_ms = None, now_ms
        self.mailbox.unread_since_ms = NO_TIME

    def declares(self, topic: str) -> int:
        """Number of partitions of a topic that it declares."""
        return self.declaration.counts.get(topic, 0)
