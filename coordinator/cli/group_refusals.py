"""Sentences about groups that are not there, and about what a group refuses."""

from __future__ import annotations

import grpc

from coordinator.cli.refusals import nearest
from coordinator.client.admin import GroupAdmin, GroupNotFound
from coordinator.core.errors import ErrorCode, advice
from coordinator.printable import printable

LOOKED_AT = 10_000
"""Groups among which the nearest names are looked for, in 0.3 s."""


def no_such_group(admin: GroupAdmin, error: GroupNotFound) -> str:
    """The sentence for a group that does not exist, with groups that do, the nearest first."""
    told = str(error).removesuffix(".")
    try:
        groups = admin.list_groups()[:LOOKED_AT]
    except (grpc.RpcError, LookupError):
        return f"{told}."
    if not groups:
        return f"{told}: there are no groups."
    return (
        f"{told}; the groups are {nearest(error.group_id, [group.group_id for group in groups])}."
    )


def quoted(name: str) -> str:
    """An id in a sentence: on one line, whatever its client has put into it."""
    return f"'{printable(name)}'"


def advice_of(code: str) -> str:
    """Advice for an error code, in half a sentence."""
    return advice(ErrorCode[code]) if code in ErrorCode.__members__ else f"error {code}"
