"""The log holds every assignment and every offset that anybody was told of, or a later one."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from tests.simulation.worlds.checkers.history import Line, of


def check(history: list[Line], dump: list[Line]) -> Iterator[str]:
    groups: dict[str, Line] = {}
    offsets: dict[tuple[str, str], int] = {}
    for line in dump:
        if line["record"] == "GroupMetadata":
            groups[line["group_id"]] = line
        elif line["record"] == "OffsetCommitted":
            key = (line["group_id"], f"{line['topic']}-{line['partition']}")
            offsets[key] = line["offset"]
    for line in of(history, "assigned"):
        stored = groups.get(line["group"])
        if stored is None or stored["generation"] < line["generation"]:
            found = "nothing" if stored is None else f"generation {stored['generation']}"
            yield f"{line['group']}: generation {line['generation']} was told; {found} is stored"
        elif stored["generation"] == line["generation"]:
            shares = {m["member_id"]: m["assignment"] for m in stored["members"]}
            share = shares.get(line["member"])
            if share is None or json.loads(base64.b64decode(share)) != line["partitions"]:
                yield (
                    f"{line['group']}, generation {line['generation']}: {line['member']} was told "
                    f"{line['partitions']}, which is not what is stored"
                )
    for line in of(history, "committed"):
        key = (line["group"], line["partition"])
        if line["answer"] == "NONE" and offsets.get(key, -1) < line["offset"]:
            yield f"{key}: {line['offset']} was told; {offsets.get(key, -1)} is stored"
