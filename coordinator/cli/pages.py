"""What a node serves over HTTP: metrics, and the console."""

from __future__ import annotations

import asyncio
import contextlib

from coordinator.console.server import ConsoleServer
from coordinator.observe.metrics import Metrics
from coordinator.security.guard import Refusal
from coordinator.security.http import Doorkeeper, Page, behind
from coordinator.security.loading import Security
from coordinator.security.rules import Operation
from coordinator.settings import Settings


class Pages:
    """Serves both until it is closed. Made in the node's event loop.

    Args:
        address: HOST:PORT at which the console asks the node.
    Raises:
        OSError: an address cannot be bound.
    """

    def __init__(
        self, settings: Settings, security: Security, metrics: Metrics, address: str
    ) -> None:
        self.metrics_url: str | None = None
        self.console_url: str | None = None
        self._security = security
        self._loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as opened:
            if settings.metrics_address is not None:
                keeper = self._doorkeeper("metrics", (Operation.READ,))
                page = Page(
                    "metrics",
                    settings.metrics_address,
                    behind(metrics.page(), keeper),
                    security.tls,
                )
                opened.callback(page.close)
                self.metrics_url = f"{page.url}metrics"
            if settings.console_address is not None:
                console = ConsoleServer(
                    *settings.console_address,
                    address,
                    credentials=security.credentials(),
                    tls=security.tls,
                    # The node is asked with the reader's token, and knows what may be seen.
                    doorkeeper=self._doorkeeper("console", (), needs_token=True),
                )
                opened.callback(console.close)
                self.console_url = console.url
            self._closing = opened.pop_all()

    def close(self) -> None:
        """Serve no more."""
        self._closing.close()

    def _doorkeeper(
        self, page: str, operations: tuple[Operation, ...], *, needs_token: bool = False
    ) -> Doorkeeper | None:
        guard = self._security.guard
        if guard is None:
            return None

        def tell(refusal: Refusal) -> None:
            with contextlib.suppress(RuntimeError):  # The node has ended meanwhile.
                self._loop.call_soon_threadsafe(guard.tell, refusal)

        return Doorkeeper(guard, page, operations, needs_token=needs_token, tell=tell)
