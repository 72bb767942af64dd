"""Keeper of the order of a log's files in a group: its documents, see `sources/group_files.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from coordinator.client.group_address import GroupAddress
from coordinator.client.transport.process_environment import ENVIRONMENT
from coordinator.operator.admin import Document, GroupAdmin
from coordinator.sources.base import Source
from coordinator.sources.group.retrying import asked
from coordinator.sources.group_files import GroupFiles
from coordinator.sources.recorded import Recordable

T = TypeVar("T")


class GroupDocuments:
    """`DocumentStore` of a group. Its calls raise as `asked`."""

    def __init__(self, address: GroupAddress) -> None:
        self._address = address
        self.group_id = address.group_id
        addresses = address.bootstrap
        self._bootstrap = addresses if isinstance(addresses, str) else ",".join(addresses)

    @property
    def can_be_asked(self) -> bool:
        """See `DocumentStore`."""
        return ENVIRONMENT.get() is None

    def documents(self, prefix: str, after_version: int) -> tuple[list[Document], int]:
        """See `DocumentStore`."""

        def ask(admin: GroupAdmin) -> tuple[list[Document], int]:
            documents: list[Document] = []
            while True:
                after = documents[-1].version if documents else after_version
                more, count = admin.documents(self.group_id, prefix, after)
                if not more:
                    return documents, count
                documents += more

        return self._asked(ask)

    def put(self, contents: Mapping[str, bytes], expected: Mapping[str, int]) -> dict[str, int]:
        """See `DocumentStore`. Raises ValueError too: the documents would be too large."""
        return self._asked(lambda admin: admin.put_documents(self.group_id, contents, expected))

    def committed(self, topic: str) -> dict[int, int]:
        """See `DocumentStore`."""

        def ask(admin: GroupAdmin) -> dict[int, int]:
            stored = admin.offsets(self.group_id).items()
            return {key.partition: offset for key, offset in stored if key.topic == topic}

        return self._asked(ask)

    def _asked(self, ask: Callable[[GroupAdmin], T]) -> T:
        return asked(self._bootstrap, self.group_id, self._address.credentials, ask)


def files_of_group(address: GroupAddress) -> GroupFiles:
    return GroupFiles(GroupDocuments(address))


def in_group(source: Source, address: GroupAddress) -> Source:
    """The source with its files in the order that the group has recorded; others as they are."""
    return ordered_by(source, files_of_group(address))


def ordered_by(source: Source, files: GroupFiles) -> Source:
    """The source with its files in the order of a record; others as they are, also if ordered."""
    if isinstance(source, Recordable) and source.order is None:
        return source.ordered_by(files)
    return source
