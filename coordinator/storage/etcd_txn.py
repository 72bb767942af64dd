"""Parts of etcd transactions: comparisons and operations."""

from __future__ import annotations

from coordinator.storage.etcd_api import rpc_pb2 as pb


def unchanged(key: bytes, mod_revision: int) -> pb.Compare:
    """Compare: the key was last written at this revision; 0: it does not exist."""
    return pb.Compare(
        result=pb.Compare.EQUAL, target=pb.Compare.MOD, key=key, mod_revision=mod_revision
    )


def equal(key: bytes, value: bytes) -> pb.Compare:
    return pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.VALUE, key=key, value=value)


def differs(key: bytes, value: bytes) -> pb.Compare:
    """Compare: the key exists, with another value."""
    return pb.Compare(result=pb.Compare.NOT_EQUAL, target=pb.Compare.VALUE, key=key, value=value)


def exists(key: bytes) -> pb.Compare:
    return pb.Compare(
        result=pb.Compare.GREATER, target=pb.Compare.CREATE, key=key, create_revision=0
    )


def put(key: bytes, value: bytes) -> pb.RequestOp:
    return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value))


def get(key: bytes) -> pb.RequestOp:
    return pb.RequestOp(request_range=pb.RangeRequest(key=key))


def delete(first: bytes, end: bytes = b"") -> pb.RequestOp:
    """Delete a key, or with `end` all keys in [first, end)."""
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=first, range_end=end))


def within(transaction: pb.TxnRequest) -> pb.RequestOp:
    """Nest a transaction, whose comparisons guard its own operations alone."""
    return pb.RequestOp(request_txn=transaction)
