"""Sources in groups: what stands on a source and on the client library, so that rows are read once.

    with BlockingMember("localhost:7400", "billing", {"flights": 8}) as member:
        consume(member, open_source("parquet:/logs/flights"), work)

| file | holds |
|---|---|
| `asking.py` | calls by code that is no member, made again while the coordinator moves |
| `record.py` | where a group keeps the order of files that `sources/group_files.py` records |
| `reading.py`, `commits.py` | chunks of a partition's rows, and their commits |
| `rows.py` | a source as `Worker(source=...)` reads it: handlers of rows |
| `consume.py` | rows until all are done: a worker with an end |
| `measures.py` | ends, begins and numbers of partitions, as members and workers ask for them |
"""

from coordinator.sources.group.consume import Stalled, Summary, Work, consume
from coordinator.sources.group.measures import ends_of
from coordinator.sources.group.record import in_group

__all__ = ["Stalled", "Summary", "Work", "consume", "ends_of", "in_group"]
