"""Codec of records: protobuf bytes, which the log carries without looking inside.

`_KINDS` says which message holds which record. Their fields are mapped by name; `DIFFERS` is the
table of exceptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.message import DecodeError

from coordinator.core.values import plan_journal as j
from coordinator.core.values import records as r
from coordinator.core.values.ids import ShardId
from coordinator.core.values.policy import Policy
from coordinator.core.values.rebalance_journal import RebalanceRecord
from coordinator.core.values.records import Record
from coordinator.durable.v1 import records_pb2 as pb
from coordinator.runtime import holdings_codec as holdings
from coordinator.runtime.field_mapping import RANGES, Differs, Exceptions, Mapped, Mappings
from coordinator.storage.log import Damaged, Loaded


def encode(record: Record) -> bytes:
    """Encode a record; equal records have equal bytes."""
    name, fields = _WRITERS[type(record)]
    message = pb.Record(group_id=record.group_id, **{name: fields(record)})  # type: ignore[arg-type]
    return message.SerializeToString()


def decode(data: bytes) -> Record:
    """Decode a record.

    Raises:
        Damaged: the bytes are no record, or one of a kind that only a newer version knows.
    """
    try:
        message = pb.Record.FromString(data)
    except DecodeError as error:
        raise Damaged(f"a record cannot be read: {error}") from error
    kind = message.WhichOneof("kind")
    if kind is None:
        raise Damaged(
            f"a record of group {message.group_id!r} is of a kind that this version does not "
            "know: run the version that wrote it, or a newer one"
        )
    return _READERS[kind](getattr(message, kind), message.group_id)


_KINDS: dict[str, type[Record]] = {
    "group_metadata": r.GroupMetadata,
    "generation_floor": r.GenerationFloor,
    "offset_committed": r.OffsetCommitted,
    "manifest_stored": r.ManifestStored,
    "document_stored": r.DocumentStored,
    "offset_deleted": r.OffsetDeleted,
    "group_deleted": r.GroupDeleted,
    "rebalance": RebalanceRecord,
    "session_member": r.SessionMemberStored,
    "session_end": r.SessionMemberEnded,
    "grants": r.PartitionsGranted,
    "phase_entered": r.PhaseEntered,
    "switched": r.PartitionSwitched,
    "reservation_freed": r.ReservationFreed,
    "policy": r.PolicyStored,
    "token_floor": r.TokenFloor,
    "numbers_raised": r.NumbersRaised,
    "plan": j.PlanRecord,
    "handoffs_ended": r.HandoffsEnded,
    "holdings": r.HoldingsStored,
    "reservation": r.ReservationStored,
}


def _read_members(messages: Any) -> tuple[r.MemberRecord, ...]:
    """Many members of a group have the same metadata, which are kept once."""
    same: dict[bytes, bytes] = {}
    return tuple(
        _read_member(message, same.setdefault(metadata := message.metadata, metadata))
        for message in messages
    )


DIFFERS: Exceptions = {
    r.GroupMetadata: {"members": Differs(decode=_read_members)},
    r.Grant: {"partitions": RANGES},
    j.PlannedMove: {"partitions": RANGES},
    r.ReservationStored: {
        "partitions": Differs("topics", holdings.encode_topics, holdings.decode_topics),
        "is_delayed": Differs("delayed"),
    },
}
_SHARED = (
    "topic", "client_id", "client_host", "client_software", "protocol_type", "protocol_name",
    "member_id", "leader", "source", "cause", "code",
)  # fmt: skip
"""Texts that many members and offsets have in common."""
_MAPPINGS = Mappings(DIFFERS, shared=_SHARED)
_read_member = _MAPPINGS.between(
    r.MemberRecord, pb.GroupMetadata.Member.DESCRIPTOR, supplied="metadata"
).value


def _mapping_of(name: str) -> Mapped:
    return _MAPPINGS.between(_KINDS[name], pb.Record.DESCRIPTOR.fields_by_name[name].message_type)


# --- Records that are no mapping of fields ------------------------------------------------------


def _policy() -> Mapped:
    mapped = _MAPPINGS.between(Policy, pb.Policy.DESCRIPTOR)
    return Mapped(
        lambda record: mapped.fields(record.policy),
        lambda message, group_id: r.PolicyStored(group_id, mapped.value(message)),
    )


def _ended(entered: Mapped, switched: Mapped) -> Mapped:
    """Hand-offs that have ended: each is one of two kinds of records."""

    def fields(record: r.HandoffsEnded) -> dict[str, Any]:
        return {
            "records": [
                {"phase_entered": entered.fields(ended)}
                if isinstance(ended, r.PhaseEntered)
                else {"switched": switched.fields(ended)}
                for ended in record.records
            ]
        }

    def value(message: pb.HandoffsEnded, group_id: str) -> r.HandoffsEnded:
        return r.HandoffsEnded(
            group_id,
            tuple(
                entered.value(ended.phase_entered, group_id)
                if ended.HasField("phase_entered")
                else switched.value(ended.switched, group_id)
                for ended in message.records
            ),
        )

    return Mapped(fields, value)


_SPECIAL = ("policy", "handoffs_ended", "holdings")
_MAPPED = {name: _mapping_of(name) for name in _KINDS if name not in _SPECIAL}
_MAPPED["policy"] = _policy()
_MAPPED["handoffs_ended"] = _ended(_MAPPED["phase_entered"], _MAPPED["switched"])
_MAPPED["holdings"] = Mapped(holdings.encode_holdings, holdings.decode_holdings)
_WRITERS = {kind: (name, _MAPPED[name].fields) for name, kind in _KINDS.items()}
_READERS: dict[str, Callable[[Any, str], Record]] = {
    name: mapped.value for name, mapped in _MAPPED.items()
}


def located(shard: ShardId, loaded: Loaded) -> Iterator[tuple[dict[str, int], Record]]:
    """Every record of a shard's log with its position, as the fields that tools print."""
    if loaded.snapshot is not None:
        context = {"shard": shard, "snapshot": loaded.snapshot.sequence}
        for data in loaded.snapshot.records:
            yield context, decode(data)
    for entry in loaded.entries:
        for index, data in enumerate(entry.records):
            context = {
                "shard": shard,
                "sequence": entry.sequence,
                "epoch": entry.fence_epoch,
                "log_offset": entry.base_offset + index,
            }
            yield context, decode(data)
