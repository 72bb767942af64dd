"""`BlockingMember`: a `GroupMember` for code that does not use asyncio; see `blocking.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from coordinator.client.errors import StaleMember
from coordinator.client.member.blocking import BlockingCalls, in_plain_code
from coordinator.client.member.group_member import GroupMember
from coordinator.client.member.machine import MemberMachine
from coordinator.client.member.view import MemberView

if TYPE_CHECKING:
    from coordinator.client.settings.typed import MemberSettings


class BlockingMember(BlockingCalls[GroupMember], MemberView):
    """A `GroupMember` whose methods block.

    Threads: one thread polls. Others may commit with holdings that it gave them, and use
    `committed`, `holds`, `alive`, `state`, the other properties, and `close`, which ends the calls
    of the others with a RuntimeError. Processes: a forked child of the process that has started it
    cannot use it.

    Signals: `poll`, `commit` and `close` may be interrupted by Ctrl-C; the member can be used, and
    closed, after it. Of a commit that was interrupted it is not known whether it is stored. Inside
    `with` see `MemberSettings.handle_signals`.

    Args:
        bootstrap, topics, settings: as for `GroupMember`.
    Raises:
        TypeError, ValueError: an argument is wrong; the message shows the right form.
        RuntimeError: a method is called before `start` or after `close`; `commit` raises
            StaleMember after it.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        group_id: str,
        topics: Mapping[str, int],
        **settings: Unpack[MemberSettings],
    ) -> None:
        super().__init__(
            lambda: GroupMember(bootstrap, group_id, topics, **settings),
            handles_signals=settings.get("handle_signals", True),
        )

    def close(self, reason: str = "closed", *, leave: bool | None = None) -> None:
        """Stop, and leave the group (a static member keeps its place).

        May be called from any thread, and again after Ctrl-C has interrupted it: it goes on.
        """
        self._close_by(lambda member: member.close(reason, leave=leave))

    poll = in_plain_code(GroupMember.poll)
    subscribe = in_plain_code(GroupMember.subscribe)
    commit = in_plain_code(GroupMember.commit, refusal=StaleMember)
    committed = in_plain_code(GroupMember.committed)
    committed_with_metadata = in_plain_code(GroupMember.committed_with_metadata)

    def _seen(self) -> tuple[MemberMachine, int]:
        return self._member._seen()
