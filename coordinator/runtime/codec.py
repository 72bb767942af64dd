"""Codec of records: protobuf bytes, which the log carries without looking inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from sys import intern
from typing import Any

from google.protobuf.message import DecodeError

from coordinator.core.ids import ShardId
from coordinator.core.records import (
    GenerationFloor,
    GroupDeleted,
    GroupMetadata,
    ManifestStored,
    MemberRecord,
    OffsetCommitted,
    OffsetDeleted,
    PartitionMove,
    PartitionRange,
    RebalanceMember,
    RebalanceRecord,
    Record,
    RemovedMember,
)
from coordinator.durable.v1 import records_pb2 as pb
from coordinator.runtime.session_codec import SESSION_DECODERS, SESSION_ENCODERS
from coordinator.storage.log import Damaged, Loaded


def encode(record: Record) -> bytes:
    """Encode a record; equal records have equal bytes."""
    message: pb.Record = _ENCODERS[type(record)](record)
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
    return _DECODERS[kind](message.group_id, getattr(message, kind))


# --- Encoders -----------------------------------------------------------------------------------


def _group_metadata(record: GroupMetadata) -> pb.Record:
    return pb.Record(
        group_id=record.group_id,
        group_metadata=pb.GroupMetadata(
            generation=record.generation,
            protocol_type=record.protocol_type,
            protocol_name=record.protocol_name,
            leader=record.leader,
            state_changed_at_ms=record.state_changed_at_ms,
            members=[
                pb.GroupMetadata.Member(
                    member_id=m.member_id,
                    instance_id=m.instance_id,
                    client_id=m.client_id,
                    client_host=m.client_host,
                    rebalance_timeout_ms=m.rebalance_timeout_ms,
                    session_timeout_ms=m.session_timeout_ms,
                    metadata=m.metadata,
                    assignment=m.assignment,
                    client_software=m.client_software,
                )
                for m in record.members
            ],
        ),
    )


def _offset_committed(record: OffsetCommitted) -> pb.Record:
    return pb.Record(
        group_id=record.group_id,
        offset_committed=pb.OffsetCommitted(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            leader_epoch=record.leader_epoch,
            metadata=record.metadata,
            committed_at_ms=record.committed_at_ms,
            expires_at_ms=record.expires_at_ms,
        ),
    )


def _rebalance(record: RebalanceRecord) -> pb.Record:
    rebalance = pb.Rebalance(
        members=[
            pb.Rebalance.Member(
                member_id=m.member_id,
                client_id=m.client_id,
                client_host=m.client_host,
                is_new=m.is_new,
                session_timeout_ms=m.session_timeout_ms,
                joined_at_ms=m.joined_at_ms,
                synced_at_ms=m.synced_at_ms,
                client_software=m.client_software,
            )
            for m in record.members
        ],
        removed=[
            pb.Rebalance.Removed(
                member_id=m.member_id,
                client_id=m.client_id,
                client_host=m.client_host,
                cause=m.cause,
                code=m.code,
                removed_at_ms=m.removed_at_ms,
                last_heard_ms=m.last_heard_ms,
                heartbeat_interval_ms=m.heartbeat_interval_ms,
                client_software=m.client_software,
            )
            for m in record.removed
        ],
        moves=[_move(move) for move in record.moves],
        **{name: getattr(record, name) for name in _REBALANCE_FIELDS},
    )
    return pb.Record(group_id=record.group_id, rebalance=rebalance)


def _move(move: PartitionMove) -> pb.Rebalance.Move:
    return pb.Rebalance.Move(
        partitions=[pb.Rebalance.Move.Range(first=r.first, last=r.last) for r in move.partitions],
        **{name: getattr(move, name) for name in _MOVE_FIELDS},
    )


_REBALANCE_FIELDS = [
    field.name
    for field in fields(RebalanceRecord)
    if field.name not in ("group_id", "members", "removed", "moves")
]
_MOVE_FIELDS = [field.name for field in fields(PartitionMove) if field.name != "partitions"]


# Any: each function takes the records of its row.
_ENCODERS: dict[type[Record], Callable[[Any], pb.Record]] = {
    GroupMetadata: _group_metadata,
    GenerationFloor: lambda r: pb.Record(
        group_id=r.group_id, generation_floor=pb.GenerationFloor(generation=r.generation)
    ),
    OffsetCommitted: _offset_committed,
    ManifestStored: lambda r: pb.Record(
        group_id=r.group_id, manifest_stored=pb.ManifestStored(manifest=r.manifest)
    ),
    OffsetDeleted: lambda r: pb.Record(
        group_id=r.group_id,
        offset_deleted=pb.OffsetDeleted(topic=r.topic, partition=r.partition),
    ),
    GroupDeleted: lambda r: pb.Record(group_id=r.group_id, group_deleted=pb.GroupDeleted()),
    RebalanceRecord: _rebalance,
    **SESSION_ENCODERS,
}


# --- Decoders -----------------------------------------------------------------------------------
# Strings and metadata that many members and offsets share are kept once.


def _read_group_metadata(group_id: str, m: pb.GroupMetadata) -> Record:
    same: dict[bytes, bytes] = {}
    members = tuple(_read_member(member, same) for member in m.members)
    leader = m.leader if m.HasField("leader") else None
    return GroupMetadata(
        group_id,
        m.generation,
        intern(m.protocol_type) if m.HasField("protocol_type") else None,
        intern(m.protocol_name) if m.HasField("protocol_name") else None,
        next((member.member_id for member in members if member.member_id == leader), leader),
        m.state_changed_at_ms,
        members,
    )


def _read_member(m: pb.GroupMetadata.Member, same: dict[bytes, bytes]) -> MemberRecord:
    metadata = m.metadata
    return MemberRecord(
        m.member_id,
        m.instance_id if m.HasField("instance_id") else None,
        intern(m.client_id),
        intern(m.client_host),
        m.rebalance_timeout_ms,
        m.session_timeout_ms,
        same.setdefault(metadata, metadata),
        m.assignment,
        intern(m.client_software),
    )


def _read_offset_committed(group_id: str, m: pb.OffsetCommitted) -> Record:
    return OffsetCommitted(
        group_id,
        intern(m.topic),
        m.partition,
        m.offset,
        m.leader_epoch,
        m.metadata,
        m.committed_at_ms,
        m.expires_at_ms if m.HasField("expires_at_ms") else None,
    )


def _read_rebalance(group_id: str, m: pb.Rebalance) -> Record:
    return RebalanceRecord(
        group_id,
        members=tuple(
            RebalanceMember(
                member.member_id,
                intern(member.client_id),
                intern(member.client_host),
                member.is_new,
                member.session_timeout_ms,
                member.joined_at_ms,
                member.synced_at_ms,
                intern(member.client_software),
            )
            for member in m.members
        ),
        removed=tuple(
            RemovedMember(
                r.member_id,
                intern(r.client_id),
                intern(r.client_host),
                intern(r.cause),
                intern(r.code),
                r.removed_at_ms,
                r.last_heard_ms,
                r.heartbeat_interval_ms,
                intern(r.client_software),
            )
            for r in m.removed
        ),
        moves=tuple(
            PartitionMove(
                partitions=tuple(PartitionRange(r.first, r.last) for r in move.partitions),
                **{name: getattr(move, name) for name in _MOVE_FIELDS},
            )
            for move in m.moves
        ),
        **{name: getattr(m, name) for name in _REBALANCE_FIELDS},
    )


_DECODERS: dict[str, Callable[[str, Any], Record]] = {
    "group_metadata": _read_group_metadata,
    "generation_floor": lambda group_id, m: GenerationFloor(group_id, m.generation),
    "offset_committed": _read_offset_committed,
    "manifest_stored": lambda group_id, m: ManifestStored(group_id, m.manifest),
    "offset_deleted": lambda group_id, m: OffsetDeleted(group_id, intern(m.topic), m.partition),
    "group_deleted": lambda group_id, _: GroupDeleted(group_id),
    "rebalance": _read_rebalance,
    **SESSION_DECODERS,
}


def located(shard: ShardId, found: Loaded) -> Iterator[tuple[dict[str, int], Record]]:
    """Every record of a shard's log with its position, as the fields that tools print."""
    if found.snapshot is not None:
        place = {"shard": shard, "snapshot": found.snapshot.sequence}
        for data in found.snapshot.records:
            yield place, decode(data)
    for entry in found.entries:
        for index, data in enumerate(entry.records):
            place = {
                "shard": shard,
                "sequence": entry.sequence,
                "epoch": entry.fence_epoch,
                "log_offset": entry.base_offset + index,
            }
            yield place, decode(data)
