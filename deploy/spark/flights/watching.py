"""Observation of the group from outside: owners, committed offsets, events of the log."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from coordinator.assignors.consumer_protocol import decode_assignment
from coordinator.operator import GroupAdmin
from flights.history import SIGKILL, SIGSTOP, History, Kill, Moment, history_of, label
from flights.notes import read_notes

STABLE = "Stable"
STEP, WOKEN = "step", "woken"
"""Kinds of happenings that the demo brings about, beside signals."""


@dataclass(frozen=True)
class Member:
    """`killed_at_s`: when the demo sent it a signal; the group has it until its session expires."""

    client_id: str
    label: str
    killed_at_s: float | None = None
    signal: str = SIGKILL


@dataclass
class View:
    """State of the group at one moment. `members` are by member id, `owners` by partition.

    While the group rebalances, the owners are those members that go on with what they hold, as
    cooperative ones do.
    """

    at_s: float
    state: str
    generation: int
    members: dict[str, Member]
    owners: dict[int, Member]
    offsets: dict[int, int]

    def clients(self) -> set[str]:
        """Client ids of the members."""
        return {member.client_id for member in self.members.values()}

    def owning_clients(self) -> set[str]:
        """Client ids of the members that have partitions."""
        return {member.client_id for member in self.owners.values()}


@dataclass
class Happening:
    """An event to show, from the coordinator's log or of the demo itself."""

    at_s: float
    text: str
    kind: str
    client_id: str = ""


@dataclass
class Watcher:
    """Collects views and happenings; times are seconds since its start."""

    admin: GroupAdmin
    group: str
    topic: str
    log: Path
    started: float = field(default_factory=time.monotonic)
    started_at: float = field(default_factory=time.time)
    views: list[View] = field(default_factory=list)
    happenings: list[Happening] = field(default_factory=list)
    owners: list[str] = field(default_factory=list)
    """Labels of all owners so far, the first one first."""
    _members: dict[str, Member] = field(default_factory=dict)
    _held: dict[int, str] = field(default_factory=dict)
    _read_to: int = 0

    def now(self) -> float:
        return time.monotonic() - self.started

    def look(self) -> View:
        """Describe the group, and read new lines of the coordinator's log."""
        described = self.admin.describe_group(self.group)
        at_s = self.now()
        members = {m.member_id: self._member(m.member_id, m.client_id) for m in described.members}
        if described.group_state == STABLE:
            self._held = {
                p.partition: member.member_id
                for member in described.members
                if member.member_assignment
                for p in decode_assignment(member.member_assignment).partitions
            }
        owners = {p: members[owner] for p, owner in self._held.items() if owner in members}
        self.owners += [
            owner
            for owner in dict.fromkeys(member.label for member in owners.values())
            if owner not in self.owners
        ]
        generation, state = described.generation_id, described.group_state
        view = View(at_s, state, generation, members, owners, self.offsets())
        self.views.append(view)
        self.happenings.extend(self._new_happenings())
        return view

    def offsets(self) -> dict[int, int]:
        """Committed offsets by partition."""
        stored = self.admin.offsets(self.group)
        return {key.partition: n for key, n in stored.items() if key.topic == self.topic}

    def note(self, text: str, kind: str = STEP, client_id: str = "") -> None:
        """Add an event of the demo itself."""
        self.happenings.append(Happening(self.now(), text, kind, client_id))

    def note_kill(self, client_id: str, at_s: float, signal: str = SIGKILL) -> None:
        """Add that the members of a client id were killed, or stopped."""
        text = f"{client_id} {'killed' if signal == SIGKILL else 'stopped'} by {signal}"
        self.happenings.append(Happening(at_s, text, signal, client_id))
        for member_id, member in self._members.items():
            if member.client_id == client_id and member.killed_at_s is None:
                self._members[member_id] = replace(member, killed_at_s=at_s, signal=signal)

    def history(self, notes: Path, end_s: float) -> History:
        """History of the run until `end_s`, with the workers' notes in a folder."""
        happened = self.happenings
        kills = [
            Kill(
                kill.client_id,
                kill.at_s,
                self._first_after(kill, "evicted"),
                kill.kind,
                self._first_after(kill, WOKEN) if kill.kind == SIGSTOP else None,
            )
            for kill in happened
            if kill.kind in (SIGKILL, SIGSTOP)
        ]
        return history_of(
            [replace(note, at_s=note.at_s - self.started) for note in read_notes(notes)],
            kills,
            [h.at_s for h in happened if h.kind == "rebalance" and h.at_s <= end_s],
            self.owners,
            [Moment(h.at_s, h.text) for h in happened if h.kind == STEP],
            end_s=end_s,
        )

    def _first_after(self, kill: Happening, kind: str) -> float | None:
        """Time of the first event of a kind behind a kill, for its member."""
        return next(
            (
                h.at_s
                for h in self.happenings
                if (h.kind, h.client_id) == (kind, kill.client_id) and h.at_s > kill.at_s
            ),
            None,
        )

    def _member(self, member_id: str, client_id: str) -> Member:
        if member_id not in self._members:
            kills = sum((h.kind, h.client_id) == (SIGKILL, client_id) for h in self.happenings)
            self._members[member_id] = Member(client_id, label(client_id, kills))
        return self._members[member_id]

    def _new_happenings(self) -> Iterator[Happening]:
        with self.log.open() as file:
            file.seek(self._read_to)
            while (line := file.readline()).endswith("\n"):
                self._read_to = file.tell()
                entry = json.loads(line)
                at_s = datetime.fromisoformat(entry["timestamp"]).timestamp() - self.started_at
                who = entry.get("client_id", "")
                match entry["event"]:
                    case "rebalance_started":
                        text = f"rebalance: {entry['cause']} {who}".rstrip()
                        yield Happening(at_s, text, "rebalance", who)
                    case "member_evicted":
                        yield Happening(at_s, f"{who} removed: {entry['cause']}", "evicted", who)
                    case "rebalance_completed":
                        text = f"generation {entry['generation']}, {entry['members']} members"
                        yield Happening(at_s, text, "generation")
