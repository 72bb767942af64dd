"""The HTTP pages of a node: metrics, and the console."""

from __future__ import annotations

import asyncio
import contextlib
import socket

from coordinator.console.server import Console
from coordinator.observe.metrics import Metrics
from coordinator.observe.metrics_page import metrics_page
from coordinator.security.doorkeeper import Doorkeeper, behind
from coordinator.security.guard import Refusal
from coordinator.security.loading import Security
from coordinator.security.rules import Operation
from coordinator.settings.sections import ServingConfig
from coordinator.web.messages import Handler, only_for
from coordinator.web.server import Page


class Pages:
    """Metrics and console, served until `close`. Create it in the node's event loop.

    Args:
        address: HOST:PORT at which the console asks the node.
    Raises:
        OSError: an address cannot be bound.
    """

    def __init__(
        self, config: ServingConfig, security: Security, metrics: Metrics, address: str
    ) -> None:
        self.metrics_url: str | None = None
        self.console_url: str | None = None
        self._security = security
        self._loop = asyncio.get_running_loop()
        tls = security.tls
        context = None if tls is None else lambda: tls.page_context
        names = own_names(config)
        with contextlib.ExitStack() as opened:

            def serve(name: str, page_address: tuple[str, int], handler: Handler) -> str:
                page = Page(name, page_address, handler, context)
                opened.callback(page.close)
                return page.url

            if config.metrics_address is not None:
                handler = metrics_page(metrics.registry)
                keeper = self._doorkeeper("metrics", (Operation.READ,))
                handler = only_for(names, handler) if keeper is None else behind(handler, keeper)
                self.metrics_url = f"{serve('metrics', config.metrics_address, handler)}metrics"
            if config.console_address is not None:
                # The console calls the node with the token of its reader, so the rules apply.
                keeper = self._doorkeeper("console", (), needs_token=True)
                console = Console(address, security.credentials(), needs_token=keeper is not None)
                handler = only_for(names, console) if keeper is None else behind(console, keeper)
                self.console_url = serve("console", config.console_address, handler)
            self._closing = opened.pop_all()

    def close(self) -> None:
        """Stop both servers."""
        self._closing.close()

    def _doorkeeper(
        self, page: str, operations: tuple[Operation, ...], *, needs_token: bool = False
    ) -> Doorkeeper | None:
        guard = self._security.guard
        if guard is None:
            return None

        def log_refusal(refusal: Refusal) -> None:
            with contextlib.suppress(RuntimeError):  # The event loop is closed.
                self._loop.call_soon_threadsafe(guard.log_refusal, refusal)

        return Doorkeeper(guard, page, operations, needs_token=needs_token, log_refusal=log_refusal)


def own_names(config: ServingConfig) -> frozenset[str]:
    """Host names under which a page may be requested without a token (DNS rebinding).

    IP addresses and localhost are always allowed. With tokens any name is: a page from another
    site has no token to send.
    """
    listening = (
        getattr(config, name).rpartition(":")[0]
        for name in ("listen", "metrics_listen", "console_listen")
    )
    names = (*listening, config.advertised_host, socket.gethostname())
    return frozenset(name.lower().removesuffix(".") for name in names if name)
