"""`MemberView`: the properties and methods of a member that do not wait, shared by both classes."""

from __future__ import annotations

from abc import ABC, abstractmethod

from coordinator.assignors import TopicPartition
from coordinator.client.forms import partition_of
from coordinator.client.member.classic.membership import Membership
from coordinator.client.member.ledger import MEMBERSHIP, Holding
from coordinator.client.member.machine import MemberMachine
from coordinator.client.member.state import MemberState


class MemberView(ABC):
    """State of a member, read from its machine."""

    @abstractmethod
    def _seen(self) -> tuple[MemberMachine, int]:
        """The machine, and the current time.

        Raises:
            RuntimeError: this is a forked child of the process that started the member.
        """

    @property
    def _membership(self) -> Membership:
        return self._seen()[0].membership

    @property
    def state(self) -> MemberState:
        """The member's state in a word, a string, with `since` and `last_error`."""
        return self._seen()[0].state

    @property
    def connected(self) -> bool:
        """True if a coordinator was found, and no call to it has failed since."""
        return self._seen()[0].is_connected

    @property
    def is_assigned(self) -> bool:
        """True once a `poll` has handed out an assignment, which may be empty, until all is lost.

        For members that have nothing: there is no event without partitions.
        """
        return bool(self._membership.holdings.known((MEMBERSHIP,)))

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions this member may work on now: handed out by `poll`, and not taken away."""
        return self._membership.holdings.known(self._membership.assignment)

    @property
    def group_id(self) -> str:
        """Id of its group."""
        return self._membership.config.group_id

    @property
    def generation(self) -> int:
        """The group's generation, as known to the member; -1: none."""
        return self._membership.generation

    @property
    def is_between_assignments(self) -> bool:
        """True while a generation is being joined and its assignment is not known yet."""
        return self._membership.is_between_assignments

    @property
    def member_id(self) -> str:
        """The id the coordinator gave; empty: none."""
        return self._membership.member_id

    @property
    def is_leader(self) -> bool:
        """True if this member computed the assignment of its generation."""
        return self._membership.is_leader

    def holding(self, partition: TopicPartition) -> Holding:
        """The current holding of a partition, for a handler that does not poll itself.

        Take it in the thread or task that polls, when the work is handed to the handler, and commit
        with `holdings=[holding]`. The commit is refused if the partition was given back or lost
        meanwhile, even if this member has it again.

        Raises:
            StaleMember: the last `poll` did not hand the partition out.
        """
        return self._membership.holdings.of(partition_of(partition))

    def holds(self, holding: Holding) -> bool:
        """True until the partition is given back or lost. May be called from any thread."""
        return self._membership.holdings.lasts(holding)

    def alive(self) -> None:
        """Count as progress without polling, during long work. May be called from any thread.

        It returns no events and gives no partitions back.
        """
        machine, now_ms = self._seen()
        machine.alive(now_ms)
