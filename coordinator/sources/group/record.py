"""Keeper of the order of a log's files in a group: see `sources/group_files.py`.

The pages of the record are the metadata of committed offsets of a pseudo-topic, `__files.` and
the topic's name. The offset of a page counts the entries up to its end. A coordinator of any
version can keep the record, which is durable, moves and is deleted with the group.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import takewhile

from coordinator.assignors import TopicPartition
from coordinator.client.group_address import GroupAddress
from coordinator.client.transport.surroundings import SURROUNDINGS
from coordinator.commit_metadata import TOO_LARGE
from coordinator.operator.admin import FILES_TOPIC, GroupAdmin
from coordinator.sources.base import Source
from coordinator.sources.group.asking import MISMATCH, RETRIABLE_REFUSALS, asked
from coordinator.sources.group_files import PAGES_A_CALL, GroupFiles, PageTooLarge, RecordPage
from coordinator.sources.recorded import Recordable

_TOPIC_MAX = 249


class OffsetPages:
    """`PageStore` in the committed offsets of a group. Its calls raise as `asked`."""

    def __init__(self, address: GroupAddress) -> None:
        self._address = address
        self.group_id = address.group_id
        told = address.bootstrap
        self._bootstrap = told if isinstance(told, str) else ",".join(told)

    @property
    def can_be_asked(self) -> bool:
        """See `PageStore`."""
        return SURROUNDINGS.get() is None

    def read(self, topic: str, first: int) -> list[RecordPage]:
        """See `PageStore`."""
        name = _pseudo_topic(topic)

        def ask(admin: GroupAdmin) -> list[RecordPage]:
            found: list[RecordPage] = []
            while True:
                begin = first + len(found)
                keys = [TopicPartition(name, begin + i) for i in range(PAGES_A_CALL)]
                told = admin.offsets_with_metadata(self.group_id, keys)
                commits = takewhile(lambda commit: commit.offset >= 0, (told[key] for key in keys))
                found += (RecordPage(commit.offset, commit.metadata) for commit in commits)
                if len(found) < begin - first + PAGES_A_CALL:
                    return found

        return asked(self._bootstrap, self.group_id, self._address.credentials, ask)

    def write(
        self, topic: str, first: int, pages: Sequence[RecordPage], expected: Sequence[int]
    ) -> bool:
        """See `PageStore`. Raises LookupError too: it was refused for another reason."""
        name = _pseudo_topic(topic)
        keys = [TopicPartition(name, first + i) for i in range(len(pages))]
        ends = {key: page.end for key, page in zip(keys, pages, strict=True)}
        texts = {key: page.text for key, page in zip(keys, pages, strict=True)}
        before = dict(zip(keys, expected, strict=True))

        def ask(admin: GroupAdmin) -> set[str]:
            refusals = set(
                admin.commit(
                    self.group_id, ends, expected=before, metadata=texts, needs_metadata=True
                ).values()
            )
            if not RETRIABLE_REFUSALS.isdisjoint(refusals):
                raise LookupError(f"the files were not recorded: {refusals}")
            return refusals

        refusals = asked(self._bootstrap, self.group_id, self._address.credentials, ask)
        if TOO_LARGE in refusals:
            raise PageTooLarge
        if MISMATCH in refusals:
            return False
        if refusals:
            raise LookupError(f"the files of {topic} were not recorded: {refusals}")
        return True


def files_of_group(address: GroupAddress) -> GroupFiles:
    return GroupFiles(OffsetPages(address))


def in_group(source: Source, address: GroupAddress) -> Source:
    """The source with its files in the order that the group has recorded; others as they are."""
    return ordered_by(source, files_of_group(address))


def ordered_by(source: Source, files: GroupFiles) -> Source:
    """The source with its files in the order of a record; others as they are, also if ordered."""
    if isinstance(source, Recordable) and source.order is None:
        return source.ordered_by(files)
    return source


def _pseudo_topic(topic: str) -> str:
    name = FILES_TOPIC + topic
    if len(name) <= _TOPIC_MAX:
        return name
    return FILES_TOPIC + hashlib.blake2b(topic.encode(), digest_size=16).hexdigest()
