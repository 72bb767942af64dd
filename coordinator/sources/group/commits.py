"""Commits with metadata, which are made without it where the coordinator refuses its size."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from coordinator.assignors import TopicPartition
from coordinator.client.errors import CommitFailed
from coordinator.client.member.ledger import Holding
from coordinator.client.offsets import OffsetAndMetadata
from coordinator.client.worker.partition import BlockingPartition, Partition
from coordinator.commit_metadata import TOO_LARGE
from coordinator.sources.group.reading import Chunk

if TYPE_CHECKING:
    from coordinator.client.member.blocking import BlockingMember

LOGGER = logging.getLogger(__name__)


def commit_to_group(
    member: BlockingMember,
    commits: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    expected: Mapping[TopicPartition, int],
    atomic: bool = False,
    holdings: Collection[Holding] | None = None,
) -> None:
    """Commit with metadata; without it, if the coordinator refuses its size.

    Args:
        holdings: see `Member.commit`; used for both attempts.
    Raises:
        CoordinatorError: as `Member.commit`.
    """
    try:
        member.commit(commits, expected=expected, atomic=atomic, holdings=holdings)
    except CommitFailed as error:
        check_too_large(error)
        offsets = {key: commit.offset for key, commit in commits.items()}
        member.commit(offsets, expected=expected, atomic=atomic, holdings=holdings)


def check_too_large(error: CommitFailed) -> None:
    """Warn that an offset is committed without metadata, whose size was refused.

    Raises:
        CommitFailed: the error, if it is another one.
    """
    if error.code != TOO_LARGE:
        raise error
    LOGGER.warning(
        "offsets are committed without what was read: raise offset_metadata_max_bytes to "
        "4096, so that files that change are noticed after a restart"
    )


async def commit(p: Partition, chunk: Chunk) -> None:
    """Commit a chunk, unless somebody else has set the offset meanwhile.

    Without metadata, if the coordinator refuses its size. Raises as `Partition.commit`.
    """
    try:
        await p.commit(chunk.after, chunk.metadata, p.stored)
    except CommitFailed as error:
        check_too_large(error)
        await p.commit(chunk.after, "", p.stored)


def commit_blocking(p: BlockingPartition, chunk: Chunk) -> None:
    """Do the same in a thread. Raises as `BlockingPartition.commit`."""
    try:
        p.commit(chunk.after, chunk.metadata, p.stored)
    except CommitFailed as error:
        check_too_large(error)
        p.commit(chunk.after, "", p.stored)
