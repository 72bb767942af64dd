"""The protocol of sinks: how rows in one store and offsets in another become true together.

Two stores are never written as one. So one of them decides, and the other follows:

1. `stage` writes the rows of a batch where no reader of the table sees them, and names them in a
   token.
2. The coordinator decides: one commit moves the group's offsets from the begin of the batch to its
   end, counts decisions up by one, and stores a `Decision` with the token as the group's manifest;
   all of it or nothing, and only if offsets and count are still what they were. From here on the
   rows count, whoever dies.
3. `commit` has the table follow: the staged rows appear, and with them the decision's number, in
   one transaction of the table's own, and only if the table does not show that number yet.
4. Whoever comes next, a restarted query or another one, first asks `recover` how far the table is,
   and has it follow. So the table is never more than one decision behind, and a manifest needs to
   name one batch only.

Why no order of kills and pauses breaks it: a batch is decided once, since offsets and count are
compared and set. A decision is not forgotten, since nobody decides number n + 1 before the table
shows n. It is not carried out twice, since the table itself refuses a number that it shows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

VERSION = 1
EARLIER = 16
"""Decisions before the newest that a manifest names, so that a commit whose answer was lost is
found though others have decided since."""


class SinkRefused(Exception):
    """The sink cannot be written, and trying again does not help: the message says what to do.

    A batch that another query has done is no error: see `ExactlyOnce.refused`.
    """


@dataclass(frozen=True, slots=True)
class Decision:
    """A batch that counts, as the coordinator's manifest of the group has it.

    Args:
        number: counts the decisions of the group, from 1 on; 0: there is none yet.
        name: unique, also among groups of the same name that were deleted.
        token: what `stage` returned; empty: it is not known any more.
        location: of the sink, for messages.
        offsets: the group's offsets at the end of the batch, by topic and partition.
        earlier: names of the decisions before it, the newest first.
    """

    group: str
    number: int
    name: str = ""
    token: str = ""
    location: str = ""
    earlier: tuple[str, ...] = ()
    offsets: Mapping[tuple[str, int], int] = field(default_factory=dict)

    def to_manifest(self) -> bytes:
        """The manifest that a group's commit carries."""
        content = {
            "v": VERSION,
            "number": self.number,
            "name": self.name,
            "token": self.token,
            "location": self.location,
            "earlier": self.earlier,
            "offsets": [[*partition, end] for partition, end in sorted(self.offsets.items())],
        }
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def from_manifest(cls, group: str, count: int, manifest: bytes) -> Decision:
        """Decode a group's manifest.

        Args:
            count: decisions of the group by its offsets; below 1: the manifest does not count.
        Raises:
            SinkRefused: it is no manifest of a sink, or a later version's.
        """
        if count < 1:
            return Decision(group, 0)
        text = manifest.decode(errors="replace")
        try:
            content = json.loads(text)
            if content["v"] != VERSION or content["number"] != count:
                raise ValueError(f"version {content['v']}, number {content['number']} of {count}")
            return Decision(
                group,
                count,
                content["name"],
                content["token"],
                content["location"],
                tuple(content["earlier"]),
                {(topic, partition): end for topic, partition, end in content["offsets"]},
            )
        except (ValueError, KeyError, TypeError) as error:
            raise SinkRefused(
                f"the manifest of group {group} is none of this version's sinks ({error}): use "
                "a group whose offsets nobody else commits with a manifest"
            ) from None

    def following(
        self, name: str, token: str, location: str, offsets: Mapping[tuple[str, int], int]
    ) -> Decision:
        """The decision after this one."""
        earlier = (self.name, *self.earlier)[:EARLIER] if self.number else ()
        return Decision(self.group, self.number + 1, name, token, location, earlier, offsets)

    def counts(self, name: str, since: int) -> bool | None:
        """Whether one of the decisions since a number up to this one has a name; None: unknown."""
        known = (self.name, *self.earlier) if self.number else ()
        if name in known:
            return True
        return False if self.number - len(known) < since else None


class Sink(Protocol):
    """A table that can show some rows and a number in one transaction.

    Any process of a group may call any method at any time, also one that others believe dead. A
    call that is cut off in the middle, or whose effect was not seen, is made again.
    """

    @property
    def location(self) -> str:
        """Kind and location, for messages and to tell it from other sinks: `delta:s3://bucket/t`."""
        ...

    def stage(self, rows: Any, name: str) -> str:
        """Write rows where nobody sees them, durably; return a token by which `commit` finds them.

        It checks all that `commit` could fail of for ever (schema, rights), since after the
        decision it is too late.

        Args:
            rows: a pyspark DataFrame, or a pyarrow Table. name: unique; use it in names of files.
        Returns:
            A text of at most 32 KiB; empty if there are no rows.
        Raises:
            SinkRefused: the rows do not fit the table.
        """
        ...

    def commit(self, token: str, decision: Decision) -> None:
        """Show the staged rows and `decision.number` of `decision.group`, in one transaction.

        Does nothing if the table shows that number or a higher one. The token is `decision.token`.
        It returns when the table is durable.
        """
        ...

    def recover(self, newest: Decision) -> int:
        """The highest number of `newest.group` that the table shows; 0: none.

        Args:
            newest: the newest decision; its number is 0 if there is none.
        """
        ...

    def discard(self, token: str) -> None:
        """Delete staged rows that do not count; called only when that is certain."""
        ...
