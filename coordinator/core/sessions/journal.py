"""The journal of a session group: its last plans, its last hand-offs, and events since a plan."""

from __future__ import annotations

from collections import deque

from coordinator.core.values.plan_journal import PlanRecord, PlanTrigger, TriggerCause
from coordinator.core.values.records import HandoffsEnded, PartitionSwitched, Phase, PhaseEntered

PLANS = 20
"""Plans that are kept."""
HANDOFFS = 1_000
"""Hand-offs that are kept."""
TRIGGERS = 10
"""Events that are named in the record of a plan; all are counted."""
CHUNK = 100
"""Hand-offs in one record of a snapshot."""


class Journal:
    """Journal of one group. `plans` and `handoffs` are durable, the oldest first.

    handoffs: the records that ended them, each with its line.
    triggers: events that the plan being made takes in, of which there were `trigger_count`.
    """

    __slots__ = ("_later", "_later_count", "handoffs", "plans", "trigger_count", "triggers")

    def __init__(self) -> None:
        self.plans: deque[PlanRecord] = deque(maxlen=PLANS)
        self.handoffs: deque[PartitionSwitched | PhaseEntered] = deque(maxlen=HANDOFFS)
        self.triggers: list[PlanTrigger] = []
        self.trigger_count = 0
        self._later: list[PlanTrigger] = []
        self._later_count = 0

    def note(self, cause: TriggerCause, member_id: str = "") -> None:
        """Record an event that the next plan answers."""
        self._later_count += 1
        trigger = PlanTrigger(cause, member_id)
        if len(self._later) < TRIGGERS and trigger not in self._later:
            self._later.append(trigger)

    def plan(self) -> None:
        """Mark the events that the plan being computed answers."""
        self.triggers = (self.triggers + self._later)[:TRIGGERS]
        self.trigger_count += self._later_count
        self._later, self._later_count = [], 0

    def planned(self) -> None:
        """Forget the events that the plan has taken in."""
        self.triggers, self.trigger_count = [], 0

    def begin(self) -> None:
        """Forget all events: they were the last owner's."""
        self.plan()
        self.planned()

    def ended(self, record: PartitionSwitched | PhaseEntered) -> None:
        """Keep the hand-off that a record ended."""
        is_end = isinstance(record, PartitionSwitched) or record.phase is Phase.HELD
        if is_end and record.line is not None:
            self.handoffs.append(record)

    def records(self, group_id: str) -> list[PlanRecord | HandoffsEnded]:
        """Records that restore it."""
        records: list[PlanRecord | HandoffsEnded] = list(self.plans)
        lines = list(self.handoffs)
        for begin in range(0, len(lines), CHUNK):
            records.append(HandoffsEnded(group_id, tuple(lines[begin : begin + CHUNK])))
        return records
