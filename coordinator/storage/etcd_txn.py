"""What transactions of etcd are made of: comparisons and operations."""

from __future__ import annotations

from coordinator.storage.etcd_api import rpc_pb2 as pb


def unchanged(key: bytes, mod_revision: int) -> pb.Compare:
    """The key was last written at this revision; 0: it is not there."""
    return pb.Compare(
        result=pb.Compare.CompareResult.EQUAL,
        target=pb.Compare.CompareTarget.MOD,
        key=key,
        mod_revision=mod_revision,
    )


def exists(key: bytes) -> pb.Compare:
    """The key is there."""
    return pb.Compare(
        result=pb.Compare.CompareResult.GREATER,
        target=pb.Compare.CompareTarget.CREATE,
        key=key,
        create_revision=0,
    )


def put(key: bytes, value: bytes, lease: int = 0) -> pb.RequestOp:
    """Write a key; with a lease, until that ends."""
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=lease))


def get(key: bytes) -> pb.RequestOp:
    """Read a key."""
    return pb.RequestOp(request_range=pb.RangeRequest(key=key))


def delete(first: bytes, end: bytes = b"") -> pb.RequestOp:
    """Delete a key, or all from one on to before another."""
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=first, range_end=end))
