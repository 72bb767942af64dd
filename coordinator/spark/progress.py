"""The share of a stream that one query owns, as its progress tells it.

Spark has no metrics for sources in Python (`ReportsSourceMetrics` is for Java), so what they would
say is the source's `latestOffset`, which listeners and `query.lastProgress` show:

    class Lag(StreamingQueryListener):
        def onQueryProgress(self, event):
            for share in shares_of(event.progress):
                print(event.progress.name, share.topic, share.owned, share.lag)
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Share:
    """Partitions that a query owned when a batch was planned. Offsets by partition.

    member: its id in the group. partitions: their number in the topic, all owners together.
    committed: stored by the group, or where it begins. ends: of the log. planned: where the batch
    ends.
    """

    group: str
    topic: str
    member: str
    partitions: int
    committed: Mapping[int, int]
    ends: Mapping[int, int]
    planned: Mapping[int, int]

    @property
    def owned(self) -> list[int]:
        """Numbers of the partitions."""
        return sorted(self.ends)

    @property
    def lag(self) -> int:
        """Offsets behind the committed ones, those of the batch included."""
        return sum(max(end - self.committed[p], 0) for p, end in self.ends.items())

    @property
    def backlog(self) -> int:
        """Offsets that are left for later batches."""
        return sum(
            max(end - max(self.planned.get(p, 0), self.committed[p]), 0)
            for p, end in self.ends.items()
        )

    def to_offset(self) -> dict[str, Any]:  # Any: JSON, as Spark's offsets are.
        """The share as Spark's latest offset."""
        return {
            "group": self.group,
            "topic": self.topic,
            "member": self.member,
            "partitions": self.partitions,
            "owned": self.owned,
            "lag": self.lag,
            "backlog": self.backlog,
            "offsets": {
                str(p): {
                    "committed": self.committed[p],
                    "planned": self.planned.get(p, self.committed[p]),
                    "end": self.ends[p],
                }
                for p in self.owned
            },
        }

    @classmethod
    def from_offset(cls, offset: Mapping[str, Any]) -> Share:
        """Decode an offset that `to_offset` made."""
        identity = {name: offset[name] for name in ("group", "topic", "member", "partitions")}
        committed, planned, ends = (
            {int(p): one[name] for p, one in offset["offsets"].items()}
            for name in ("committed", "planned", "end")
        )
        return cls(**identity, committed=committed, planned=planned, ends=ends)


def shares_of(progress: Any) -> list[Share]:  # Any: pyspark's StreamingQueryProgress.
    """The query's share of each of its `consumer_group` sources; without the others."""
    shares = []
    for source in progress.sources:
        try:
            offset = json.loads(source.latestOffset or "null")
            shares.append(Share.from_offset(offset))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # A source of another kind.
    return shares
