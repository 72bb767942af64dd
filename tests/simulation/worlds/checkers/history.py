"""History of a run (what clients saw) and dump of its log, as lines of JSON.

A history is written by those who made the calls; each line is one answer (or its lack):

    {"op": "joined",    "began": 1.0, "ended": 1.2, "group", "member", "generation", "leader",
                        "restarted"}   true if a static member has come back without its member id
    {"op": "assigned",  "began", "ended", "group", "member", "generation", "partitions": [...]}
    {"op": "committed", "began", "ended", "group", "partition", "offset", "answer"}
    {"op": "fetched",   "began", "ended", "group", "partition", "offset"}
    {"op": "beaten",    "began", "ended", "group", "member", "generation", "answer"}
    {"op": "quiet",     "group", "since"}   from then on nothing calls for a rebalance there

A simulated world sees more than clients do:

    {"op": "handled",   "group", "partition", "offset", "since"}
                        a worker was told that its commit is stored; it has the partition since that
                        generation, as far as it knows
    {"op": "served",    "at", "node", "group", "epoch", "method", "in_session"}
                        a node answered without an error; the store counts its session or does not
    {"op": "stepped",   "node", "loaded"}   a shard that was loaded, or was not, was given an input
    {"op": "rested",    "group", "expected": [...], "shares": {"member": [generation, [...]]},
                        "seats": {"member": 1}}
                        what members hold a while after everything was healed; none: not at rest;
                        and as how many members the coordinator knows each
    {"op": "worked",    "at", "group", "partition", "members": [...]}
                        members that may work on a partition of a session group at one time, by
                        their own clocks; written when that changes
    {"op": "kept",      "group", "partition", "offset", "token", "began", "ended"}
                        a member of a session group was told that its commit is stored, which it
                        has asked for at `began`
    {"op": "decided",   "deciding": [...]}   the nodes of a cluster that decide, at the same time

Times are seconds on one clock. `answer` is the name of an error code, or "none" if the call
had no answer: then what it asked for may have been done or not. Of `joined`, `assigned`
and `fetched` only successes are recorded.

The dump is that of `coordinator log dump`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def read(path: Path) -> list[Line]:
    """The lines of a file. The last one may be cut off, if its writer was killed."""
    lines = path.read_text().splitlines()
    found = []
    for number, line in enumerate(lines):
        try:
            found.append(json.loads(line))
        except ValueError:
            assert number == len(lines) - 1, f"{path}:{number + 1} is no JSON: {line[:80]}"
    return found


def of(history: list[Line], *ops: str) -> Iterator[Line]:
    """The lines of some kinds, in the order in which they ended."""
    return iter(sorted((x for x in history if x["op"] in ops), key=lambda x: x.get("ended", 0.0)))
