"""`MemberView`: what can be seen of a member without waiting, in both of its faces."""

from __future__ import annotations

from abc import ABC, abstractmethod

from coordinator.assignors import TopicPartition
from coordinator.client.holdings import Holding
from coordinator.client.machine import MemberMachine
from coordinator.client.membership import Membership


def closing_reason(error: BaseException | None) -> str:
    """Why a member is closed at the end of a `with`; told to the coordinator."""
    return "closed" if error is None else f"failed: {error}"


class MemberView(ABC):
    """What a member has, as its machine knows it."""

    @abstractmethod
    def _seen(self) -> tuple[MemberMachine, int]:
        """The machine, and what its clock shows.

        Raises:
            RuntimeError: there is none yet.
        """

    @property
    def _membership(self) -> Membership:
        return self._seen()[0].membership

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions this member may work on now: handed out by `poll`, and not taken away."""
        return self._membership.holdings.known(self._membership.assignment)

    @property
    def generation(self) -> int:
        """The group's generation as far as the member knows; -1: none."""
        return self._membership.generation

    @property
    def is_between_assignments(self) -> bool:
        """True while a generation is being joined: what is assigned in it is not known yet."""
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
        """The partition as the last `poll` handed it out, for a handler that does not poll itself.

        Take it when the work is handed to the handler, in the thread or task that polls, and
        commit with `holdings=[holding]`: it is refused if the partition has been away meanwhile,
        even if this member has it again.

        Raises:
            StaleMember: the member does not hold it, as far as `poll` has told.
        """
        return self._membership.holdings.of(partition)

    def holds(self, holding: Holding) -> bool:
        """False once the partition was given back or lost. It may be asked in any thread."""
        return self._membership.holdings.lasts(holding)

    def alive(self) -> None:
        """Show progress without polling: the work on a long piece goes on. Any thread may call it.

        It hears nothing, and gives nothing back.
        """
        machine, now_ms = self._seen()
        machine.alive(now_ms)
