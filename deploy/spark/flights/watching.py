"""Observation of the group from outside: owners, committed offsets, events of the log."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from coordinator.assignors.consumer_protocol import decode_assignment
from coordinator.client.admin import GroupAdmin


@dataclass
class View:
    """State of the group at one moment. `owners` maps partitions to client ids."""

    at_s: float
    state: str
    generation: int
    members: list[str]
    owners: dict[int, str]
    offsets: dict[int, int]


@dataclass
class Happening:
    """An event to show, from the coordinator's log."""

    at_s: float
    text: str
    kind: str


@dataclass
class Watcher:
    """Collects views and happenings; times are seconds since its start."""

    admin: GroupAdmin
    group: str
    topic: str
    log: Path
    started: float = field(default_factory=time.monotonic)
    views: list[View] = field(default_factory=list)
    happenings: list[Happening] = field(default_factory=list)
    _read_to: int = 0

    def look(self) -> View:
        """Describe the group, and read new lines of the coordinator's log."""
        described = self.admin.describe_group(self.group)
        owners: dict[int, str] = {}
        for member in described.members:
            if member.member_assignment:
                for partition in decode_assignment(member.member_assignment).partitions:
                    owners[partition.partition] = member.client_id
        view = View(
            time.monotonic() - self.started,
            described.group_state,
            described.generation_id,
            sorted(member.client_id for member in described.members),
            owners,
            self.offsets(),
        )
        self.views.append(view)
        self.happenings.extend(self._new_happenings(view.at_s))
        return view

    def offsets(self) -> dict[int, int]:
        """Committed offsets by partition."""
        stored = self.admin.offsets(self.group)
        return {key.partition: n for key, n in stored.items() if key.topic == self.topic}

    def note(self, text: str, kind: str) -> None:
        """Add an event of the demo itself."""
        self.happenings.append(Happening(time.monotonic() - self.started, text, kind))

    def _new_happenings(self, at_s: float) -> Iterator[Happening]:
        with self.log.open() as file:
            file.seek(self._read_to)
            while (line := file.readline()).endswith("\n"):
                self._read_to = file.tell()
                entry = json.loads(line)
                match entry["event"]:
                    case "rebalance_started":
                        who = entry.get("client_id", "")
                        text = f"rebalance: {entry['cause']} {who}".rstrip()
                        yield Happening(at_s, text, "rebalance")
                    case "member_evicted":
                        text = f"{entry['client_id']} removed: {entry['cause']}"
                        yield Happening(at_s, text, "evicted")
                    case "rebalance_completed":
                        text = f"generation {entry['generation']}, {entry['members']} members"
                        yield Happening(at_s, text, "generation")
