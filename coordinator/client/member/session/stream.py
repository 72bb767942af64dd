"""The stream of a session member: attaching, heartbeats, versions of its orders, leaving.

It says what the member is to send, and takes in what it receives; times are milliseconds of the
member's own clock, which has to count the time for which the machine sleeps (CLOCK_BOOTTIME). What
a message says is true from when it was sent.

What becomes of each partition is in `partitions.py`, until when they may be worked on in
`leases.py`. The stream itself is opened and closed by `part.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from coordinator.assignors import TopicPartition
from coordinator.client.codes import code_name
from coordinator.client.member.calls import Level
from coordinator.client.member.ledger import FOREVER_MS, MEMBERSHIP, Holding, Ledger
from coordinator.client.member.part import ProgressRules
from coordinator.client.member.session.leases import NEVER, Lease
from coordinator.client.member.session.orders import orders_of, partitions_of
from coordinator.client.member.session.partitions import Partitions
from coordinator.dial import address_of
from coordinator.v1 import errors_pb2
from coordinator.v1 import session_pb2 as pb

RETRY_MS, MAX_RETRY_MS = 100, 10_000
ATTACH_MS, MIN_ATTACH_MS = 10_000, 1_000
"""Time for which the answer to an Attach is awaited: at most, and at least."""
ACKS_A_MESSAGE = 1_000
LOG_ENDS_A_BEAT = 1_000
LAST = frozenset({pb.GoAway.LEFT, pb.GoAway.DRAINED})
FINAL = frozenset(
    {errors_pb2.FENCED_INSTANCE_ID, errors_pb2.INVALID_REQUEST, errors_pb2.INVALID_GROUP_ID,
     errors_pb2.INCONSISTENT_GROUP_PROTOCOL, errors_pb2.GROUP_MAX_SIZE_REACHED,
     errors_pb2.GROUP_AUTHORIZATION_FAILED, errors_pb2.UNSUPPORTED_VERSION}
)  # fmt: skip


@dataclass(slots=True)
class _LeaveWish:
    """The owner's wish to leave, sent on every stream until it is granted."""

    kind: pb.SessionLeave.Kind.ValueType
    until_ms: int
    reason: str


class SessionStream(ProgressRules):
    """The streams of one member, of which at most one is open.

    Args:
        attach: its first message, without session, stream number and held set.
        random: from 0 to 1, below 1.
        log: has a line written.
    """

    def __init__(
        self,
        attach: pb.Attach,
        random: Callable[[], float],
        ledger: Ledger,
        log: Callable[[Level, str], None],
    ) -> None:
        self._attach, self._random, self._ledger, self._log = attach, random, ledger, log
        self.session_id = ""
        self.member_id = ""
        self.is_waiting = False
        """True while another process has the member's name, and may be alive."""
        self.why = ""
        """The coordinator's reason that it holds nothing."""
        self.lease = Lease(0)
        self.partitions = Partitions(self.lease, ledger, self._say)
        self.stopped_because = ""
        self.failure: str | None = None
        self.failure_code = ""
        self.progress = 0
        self.is_ready = attach.ready if attach.HasField("ready") else True
        self.is_stopped = False
        self.has_stream = False
        self.moved_to = ""
        """HOST:PORT that coordinates the group now, as the last one has said; empty: not known."""
        self._logs: dict[TopicPartition, range] = {}
        self._out: deque[pb.SessionRequest] = deque()
        self._stream_number = 0
        self._epoch = 0
        self._version = 0
        self._number = 0
        self._attach_sent_ms = 0
        self._is_attached = False
        self.interval_ms = 0
        """Time between two heartbeats, as the coordinator set it; 0: not yet."""
        self._next_beat_ms: int | None = None
        self._unanswered_ms: int | None = None
        """Since when the stream has owed an answer."""
        self._retry_at_ms: int | None = 0
        self._retries = 0
        self._pages: list[pb.Orders] = []
        self._pages_sent_ms = NEVER
        """Time at which the message that the pages answer was sent."""
        self._lacks_whole = False
        """True after a gap, or when nothing but the whole state may renew."""
        self._asked_ms: int | None = None
        """Time at which the whole state was last asked for at once, without an answer yet."""
        self._leaving: _LeaveWish | None = None

    # --- The driver: streams ---

    def wants_stream(self, now_ms: int) -> bool:
        """True if a stream is to be opened now."""
        return (
            not self.is_stopped
            and not self.has_stream
            and self._retry_at_ms is not None
            and now_ms >= self._retry_at_ms
        )

    def opened(self, now_ms: int) -> None:
        self.has_stream, self._is_attached = True, False
        self._stream_number += 1
        self._out.clear()
        self._pages.clear()
        self._asked_ms = None
        attach = pb.Attach()
        attach.CopyFrom(self._attach)
        attach.session_id = self.session_id
        attach.keep_classic = attach.keep_classic and not self.session_id
        attach.stream_number = self._stream_number
        attach.ready = self.is_ready
        attach.coordinator_epoch = self._epoch
        attach.held.extend(self.partitions.claims())
        if self.session_id and self.lease.renewed_ms != NEVER:
            attach.silent_ms = now_ms - self.lease.renewed_ms
        self._attach_sent_ms = self._unanswered_ms = now_ms
        self._out.append(pb.SessionRequest(attach=attach))

    def closed(self, now_ms: int, after_ms: int = 0) -> None:
        """The stream has ended, or could not be opened, for whatever reason.

        Args:
            after_ms: the coordinator's wish for the pause.
        """
        if not self.is_stopped:
            self._drop_stream()
            self._retry(now_ms, after_ms)

    def is_silent(self, now_ms: int) -> bool:
        """True if the stream has owed an answer for too long."""
        at_ms = self._silent_at_ms()
        return at_ms is not None and now_ms >= at_ms

    def _silent_at_ms(self) -> int | None:
        if not self.has_stream or self._unanswered_ms is None:
            return None
        if self._is_attached:
            return self._unanswered_ms + max(1, self.lease.length_ms // 3)
        # An answer to an Attach that comes later than this finds the member suspended.
        wait_ms = self.lease.length_ms // 2 if self.partitions.held else ATTACH_MS
        return self._unanswered_ms + min(ATTACH_MS, max(MIN_ATTACH_MS, wait_ms))

    def _drop_stream(self) -> None:
        self.has_stream = self._is_attached = False
        self._next_beat_ms = self._unanswered_ms = None
        self._out.clear()

    def _retry(self, now_ms: int, after_ms: int = 0) -> None:
        longest_ms = min(RETRY_MS << min(self._retries, 10), MAX_RETRY_MS)
        if self.lease.length_ms:
            longest_ms = min(longest_ms, self.lease.length_ms // 10)
        self._retries += 1
        self._retry_at_ms = now_ms + after_ms + int(longest_ms * self._random())

    # --- The driver: time and messages ---

    def next_deadline(self, *, is_opening: bool = False) -> int | None:
        """Time at which `pass_time` is to be called again; None: at the next input.

        Args:
            is_opening: the driver opens a stream already.
        """
        if self.is_stopped:
            return None
        times = [self._next_beat_ms, self._silent_at_ms()]
        times.append(None if self.has_stream or is_opening else self._retry_at_ms)
        times.append(self.partitions.first_end_ms())
        return min((at for at in times if at is not None and at != FOREVER_MS), default=None)

    def pass_time(self, now_ms: int) -> None:
        """Let time pass: suspend what is not valid any more, and send a heartbeat if it is due."""
        self.partitions.pass_time(now_ms)
        if self._next_beat_ms is not None and now_ms >= self._next_beat_ms:
            self._send_heartbeat(now_ms)

    def next_message(self) -> pb.SessionRequest | None:
        """The next message to send; None: there is none."""
        return self._out.popleft() if self.has_stream and self._out else None

    def handle(self, message: pb.SessionResponse, now_ms: int) -> None:
        """Take in a message of the newest stream."""
        self.pass_time(now_ms)
        self.partitions.recheck()
        match message.WhichOneof("message"):
            case "attached":
                self._attached(message.attached, now_ms)
            case "heartbeat_ack":
                self._acknowledged(message.heartbeat_ack, now_ms)
            case "orders":
                self._orders(message.orders, now_ms)
            case "refused":
                self._refused(message.refused, now_ms)
            case "go_away":
                self._gone(message.go_away, now_ms)

    # --- The owner ---

    def leave(
        self,
        kind: pb.SessionLeave.Kind.ValueType,
        now_ms: int,
        within_ms: int = 0,
        reason: str = "",
    ) -> None:
        """The member leaves. A member that no coordinator knows has left at once."""
        if self.is_stopped:
            return
        self._leaving = _LeaveWish(kind, now_ms + within_ms, reason)
        self.partitions.has_left = kind != pb.SessionLeave.DRAIN
        if self._is_attached:
            self._say_leaving(now_ms)
        elif not self.session_id and not self.has_stream:
            self._stop("it has left")

    def stop(self, reason: str) -> None:
        """Stop without the coordinator's word: what is held ends with its lease."""
        if not self.is_stopped:
            self._leaving = self._leaving or _LeaveWish(pb.SessionLeave.NOW, 0, reason)
            self._stop(reason)

    def set_ready(self, is_ready: bool, now_ms: int) -> None:  # It is the value.
        """The owner is to be given partitions, or no more."""
        self.is_ready = is_ready
        self._send_heartbeat(now_ms)

    def subscribe(self, topics: Collection[tuple[str, int]], now_ms: int) -> None:
        """Declare other topics or other numbers of partitions, with a new Attach."""
        declared = self._attach.topics
        if dict(topics) == {topic.name: topic.partitions for topic in declared}:
            return
        del declared[:]
        for name, partitions in topics:
            declared.add(name=name, partitions=partitions)
        if self.has_stream:
            self._drop_stream()
            self._retry_at_ms = now_ms

    # --- Progress, which heartbeats carry; waiting in a poll is none ---

    def alive(self, now_ms: int) -> None:
        self.progress = max(self.progress, now_ms)

    def note_commit(self, now_ms: int) -> None:
        self.alive(now_ms)

    def report(self, logs: Mapping[TopicPartition, range]) -> bool:
        self._logs.update(logs)
        return True

    # --- Inside: messages ---

    def _attached(self, attached: pb.Attached, now_ms: int) -> None:
        why = f", waits: {attached.why}" if attached.standing else ""
        self._log(Level.INFO, f"attached, lease {attached.lease_ms} ms{why}")
        is_new = attached.session_id != self.session_id
        if not is_new and attached.coordinator_epoch < self._epoch:
            return  # Epochs are compared within a session: a store may have been put back.
        self._epoch = attached.coordinator_epoch
        self._version = 0  # Until the last page of the state that comes with it.
        if is_new:
            self._number = 0
        self.lease.begin(attached.lease_ms, is_new=is_new)
        self.session_id, self.member_id = attached.session_id, attached.member_id
        self.is_waiting = attached.standing == pb.Attached.WAITING
        if not (self.is_waiting or self._ledger.are_of_a_member):
            self._ledger.begin((Holding(MEMBERSHIP),))
        self.why = attached.why
        self.moved_to = ""
        self._retries = 0
        self.interval_ms = max(1, attached.heartbeat_interval_ms or attached.lease_ms // 4)
        self._next_beat_ms = now_ms + self.interval_ms
        if attached.HasField("orders"):
            self._take_page(attached.orders, self._attach_sent_ms, now_ms)
        if not self._is_attached:
            self._is_attached, self._unanswered_ms = True, None
            if self._leaving is not None:
                self._say_leaving(now_ms)

    def _acknowledged(self, ack: pb.SessionHeartbeatAck, now_ms: int) -> None:
        if ack.coordinator_epoch < self._epoch or ack.number > self._number:
            return  # An older coordinator's, or one of a heartbeat that was never sent.
        self._epoch = ack.coordinator_epoch
        newer = [at_ms for number, at_ms in self.lease.sent.items() if number > ack.number]
        self._unanswered_ms = min(newer, default=None)
        if not self.lease.acknowledge(ack.number, partitions_of(ack.expiring), now_ms):
            self._request_whole(now_ms)

    def _request_whole(self, now_ms: int) -> None:
        """Ask at once, and once an interval: its answer may be on its way, or never come."""
        self._lacks_whole = True
        if self._asked_ms is None or now_ms - self._asked_ms >= self.interval_ms:
            self._asked_ms = now_ms
            self._send_heartbeat(now_ms)

    def _orders(self, orders: pb.Orders, now_ms: int) -> None:
        if orders.coordinator_epoch < self._epoch:
            return
        if orders.coordinator_epoch > self._epoch and orders.HasField("based_on"):
            self._request_whole(now_ms)  # Versions are of one epoch.
            return
        self._epoch = orders.coordinator_epoch
        sent_ms = NEVER
        if orders.HasField("answers"):  # 0: the Attach of this stream.
            sent_ms = self.lease.sent.get(orders.answers, NEVER)
            sent_ms = sent_ms if orders.answers else self._attach_sent_ms
        self._take_page(orders, sent_ms, now_ms)

    def _take_page(self, orders: pb.Orders, sent_ms: int, now_ms: int) -> None:
        """A state in pages takes effect with the last one."""
        if self._pages and self._pages[0].version != orders.version:
            self._pages.clear()
        if not self._pages:
            self._pages_sent_ms = sent_ms
        self._pages.append(orders)
        if orders.is_part:
            return
        pages, self._pages = self._pages, []
        if not pages[0].HasField("based_on"):
            self._take_whole(pages, self._pages_sent_ms, now_ms)
        elif pages[0].based_on == self._version:
            self._version = orders.version
            self.why = pages[0].why
            self.partitions.carry_out(orders_of(pages), now_ms, is_fresh=False)
        elif orders.version > self._version:
            self._request_whole(now_ms)

    def _take_whole(self, pages: list[pb.Orders], sent_ms: int, now_ms: int) -> None:
        self._version = pages[0].version
        self.why = pages[0].why
        is_fresh = sent_ms != NEVER and self.lease.is_fresh(sent_ms, now_ms)
        self._lacks_whole = False
        if is_fresh:
            self.lease.confirm(sent_ms)
            self._asked_ms = None
        orders = list(orders_of(pages))
        self.partitions.keep({order.partition for order in orders})
        self.partitions.carry_out(orders, now_ms, is_fresh=is_fresh)

    def _refused(self, refused: pb.SessionRefused, now_ms: int) -> None:
        code = code_name(refused.error_code)
        self._log(Level.WARNING, f"refused: {code}: {refused.error_message}")
        self._drop_stream()
        if refused.error_code == errors_pb2.UNKNOWN_MEMBER_ID:
            self.partitions.lose_all("the session has ended")
            self._ledger.end_all("the session has ended")
            self.session_id = ""
        if refused.error_code in FINAL:
            self.failure_code = code
            self._stop(refused.error_message or code)
        elif self._leaving is not None and not self.session_id:
            self._stop("it has left")
        else:
            self._retry(now_ms, refused.retry_after_ms)

    def _gone(self, go_away: pb.GoAway, now_ms: int) -> None:
        self._log(Level.INFO, f"told to go away: {pb.GoAway.Reason.Name(go_away.reason)}")
        self._drop_stream()
        if go_away.reason in LAST:
            self._leaving = self._leaving or _LeaveWish(pb.SessionLeave.NOW, 0, "")
            self._stop("it has left")
        elif go_away.reason == pb.GoAway.SUPERSEDED:
            self.failure_code = "FENCED_INSTANCE_ID"
            self._stop("another process, or another stream, has taken its place")
        else:
            self.moved_to = address_of(go_away.host, go_away.port) if go_away.host else ""
            self._retry(now_ms)

    def _stop(self, reason: str) -> None:
        self.partitions.lose_all(reason)
        self._drop_stream()
        self._ledger.end_all(reason)
        self.is_stopped, self.stopped_because = True, reason
        self.failure = None if self._leaving else reason
        self._retry_at_ms = None

    # --- Inside: what is sent ---

    def _send_heartbeat(self, now_ms: int) -> None:
        if not self._is_attached:
            return
        self._number += 1
        self.lease.send(self._number, now_ms)
        if self._unanswered_ms is None:
            self._unanswered_ms = now_ms
        beat = pb.SessionHeartbeat(
            number=self._number,
            applied_epoch=self._epoch,
            applied_version=self._version,
            whole=self._lacks_whole
            or any(held.is_suspended for held in self.partitions.held.values()),
            progress=self.progress,
            ready=self.is_ready,
        )
        if self.partitions.has_changed or self._number % 10 == 0:
            beat.held.topics.extend(self.partitions.claims())
            beat.held.SetInParent()
            self.partitions.has_changed = False
        for key in list(self._logs)[:LOG_ENDS_A_BEAT]:
            log = self._logs.pop(key)
            end = beat.log_ends.add(topic=key.topic, partition=key.partition)
            end.log_begin_offset, end.log_end_offset = log.start, log.stop
        self._out.append(pb.SessionRequest(heartbeat=beat))
        self._next_beat_ms = now_ms + self.interval_ms

    def _say_leaving(self, now_ms: int) -> None:
        leaving = self._leaving
        assert leaving is not None
        leave = pb.SessionLeave(
            kind=leaving.kind,
            within_ms=max(0, leaving.until_ms - now_ms),
            reason=leaving.reason,
        )
        self._out.append(pb.SessionRequest(leave=leave))

    def _say(self, ack: pb.SessionAck.Partition) -> None:
        last = self._out[-1].ack if self._out and self._out[-1].HasField("ack") else None
        if last is None or len(last.partitions) >= ACKS_A_MESSAGE:
            self._out.append(pb.SessionRequest(ack=pb.SessionAck()))
            last = self._out[-1].ack
        last.partitions.append(ack)
