"""Nodes that workers run themselves: a store's URL in the place of addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coordinator.client.errors import CannotEmbed

if TYPE_CHECKING:
    from coordinator.client.embedding.nodes import Embedded, Serve

SERVE_S = 30.0


def embedded(
    url: str, *, serve: Serve = "auto", nodes: int = 3, timeout_s: float = SERVE_S, **settings: Any
) -> Embedded:  # Any: the settings' own types.
    """Nodes that are found by the URL of their store, in a `with`, in the place of addresses.

        with embedded("sqlite:///jobs") as bootstrap:
            worker = Worker(bootstrap, "thumbnails", topics={"images": 12})

    Where no node serves, this process runs one as a child: the ordinary `coordinator serve`, on
    loopback, for clients that can read its token in the store. It ends after the process.

    Args:
        url: of the store: sqlite:///jobs is a folder beside, and sqlite:////var/lib/jobs one by its
            full path; postgresql://HOST/DATABASE?cluster=NAME as libpq has it.
        serve: False: this process runs no node, and waits for another one's.
        nodes: of a PostgreSQL store: the most that workers run, over all machines.
        timeout_s: to wait for a node.
        settings: of `coordinator serve`, for the node that this process runs: for a PostgreSQL
            store on several machines `listen`, with TLS or `insecure`.
    Raises:
        ValueError: the URL names no store that can be embedded. CannotEmbed: this is no Unix.
    """
    try:
        from coordinator.client.embedding.nodes import Embedded
    except ModuleNotFoundError as error:
        if error.name != "fcntl":
            raise
        raise CannotEmbed("nodes run on Unix alone: give the address of a server") from error
    return Embedded(url, serve, nodes, timeout_s, settings)
