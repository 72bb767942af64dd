"""The run of one test on virtual time."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final

from coordinator.testing.group import VirtualGroup
from coordinator.testing.loop import VirtualLoop
from coordinator.testing.threads import PATIENCE_S

TRANSCRIPT_LINES: Final = 200


class VirtualTest:
    """The loop of one test, and the group on it: call it to make the group."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.group: VirtualGroup | None = None

    def __call__(
        self,
        *,
        patience_s: float = PATIENCE_S,
        **settings: Any,  # Any: the settings' own types.
    ) -> VirtualGroup:
        """Make the group of this test.

        Args:
            patience_s: real seconds that a thread may run without a call of the library.
            settings: of its coordinator, by name, as those of `coordinator serve`.
        Raises:
            InvalidSetting: there is no such setting; the message names the nearest.
            RuntimeError: the test has a group already.
        """
        if self.group is not None:
            raise RuntimeError("a test has one virtual group: start all its workers there")
        self.loop.threads.patience_s = patience_s
        self.group = VirtualGroup(self.loop, **settings)
        return self.group

    def __getattr__(self, name: str) -> Any:  # Any: it always raises.
        raise AttributeError(
            f"`virtual_group` makes a group: write group = virtual_group(), then group.{name}"
        )

    def run(
        self,
        test: Callable[..., Coroutine[Any, Any, object]],
        *args: Any,  # Any: the test's own arguments.
        **named: Any,
    ) -> None:
        """Run a test, and then stop what it has started.

        Raises:
            Exception: the test has failed, or what it has started.
            WaitsForever: it waits for something that never happens.
        """
        self.loop.run_until_complete(self._run(test(*args, **named)))

    def transcript(self) -> str:
        """The end of the group's transcript."""
        lines = [] if self.group is None else self.group.transcript().splitlines()
        return "\n".join(lines[-TRANSCRIPT_LINES:])

    def close(self) -> None:
        """End whatever the test has left; threads get `TestEnded` from the call they wait in."""
        self.loop.close()

    async def _run(self, test: Coroutine[Any, Any, object]) -> None:
        if self.group is not None:  # A fixture has made it.
            self.group.surround()
        await test
        if self.group is not None:
            await self.group.close()
