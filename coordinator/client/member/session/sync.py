"""`BlockingSessionMember`: a `SessionMember` for code that does not use asyncio."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from coordinator.client.errors import StaleMember
from coordinator.client.member.blocking import BlockingCalls, in_plain_code, on_loop
from coordinator.client.member.session.member import SessionMember, SessionView
from coordinator.client.member.session.member_machine import SessionMemberMachine

if TYPE_CHECKING:
    from coordinator.client.settings.typed import MemberSettings


class BlockingSessionMember(BlockingCalls[SessionMember], SessionView):
    """A `SessionMember` whose methods block; `poll` returns the changes.

    Threads: one thread polls. Others may use everything else, and `close`, which ends the calls of
    the others with a RuntimeError. Processes: a forked child has no membership: `valid` is False
    there, and other calls raise.

    Signals: inside `with` in the main thread, Ctrl-C and SIGTERM end the `with`, unless the program
    handles them itself, so that the member leaves.

    Args:
        bootstrap, topics, settings: as for `SessionMember`.
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
            lambda: SessionMember(bootstrap, group_id, topics, **settings),
            handles_signals=settings.get("handle_signals", True),
        )

    def close(self, reason: str = "closed", *, return_within_ms: int | None = None) -> None:
        """Leave; see `SessionMember.close`. May be called from any thread, and again after Ctrl-C
        has interrupted it: it goes on."""
        self._close_by(lambda member: member.close(reason, return_within_ms=return_within_ms))

    poll = in_plain_code(SessionMember.poll)
    commit = in_plain_code(SessionMember.commit, refusal=StaleMember)
    committed = in_plain_code(SessionMember.committed)
    committed_with_metadata = in_plain_code(SessionMember.committed_with_metadata)
    drain = on_loop(SessionMember.drain)
    ready = on_loop(SessionMember.ready)
    released = on_loop(SessionMember.released)
    refuse = on_loop(SessionMember.refuse)
    set_ready = on_loop(SessionMember.set_ready)
    subscribe = on_loop(SessionMember.subscribe)
    report = on_loop(SessionMember.report)

    @property
    def pid(self) -> int | None:  # type: ignore[override]  # The member's own.
        """Id of the process that has started it; None: none has."""
        return self._member.pid

    @property
    def _machine(self) -> SessionMemberMachine:  # type: ignore[override]  # The member's own.
        return self._member._machine

    @property
    def _clock(self) -> Callable[[], int]:  # type: ignore[override]  # The member's own.
        return self._member._clock
