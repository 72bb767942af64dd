"""Nodes that workers run themselves: no more than asked for, with one token for their clients,
which nodes of other kinds show them too.

A node reserves its place before it starts, under the lock of `cluster`, so that of hundreds of
processes that start together as many run one as are to. Only how long a place is kept for one that
never comes is decided by the server's clock.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from typing import NamedTuple

import psycopg

from coordinator.storage.coordination import NodeInfo
from coordinator.storage.log import CannotOpen
from coordinator.storage.postgres_connection import PostgresConnection, failure_of
from coordinator.storage.postgres_lineage import PostgresStore

KEPT_S = 30
_RESERVED = """
SELECT node, token, NOT serves AND made > clock_timestamp() - make_interval(secs => %s)
FROM reservation
"""
_FORGET = "DELETE FROM reservation WHERE NOT node = ANY(%s)"
_WRITE = """
INSERT INTO reservation (node, token, machine, serves) VALUES (%s, %s, %s, %s)
ON CONFLICT (node) DO UPDATE SET token = excluded.token, serves = excluded.serves
"""
_KNOWN = """
SELECT info, machine FROM node LEFT JOIN reservation ON reservation.node = node.id
WHERE serves IS NOT FALSE
ORDER BY coalesce(made, '-infinity'), id
"""


class Known(NamedTuple):
    """State of the nodes of a store.

    nodes: each with its machine, which is empty if no worker runs it. token: of the clients; empty:
    there is no embedded node. starting: places of nodes that do not serve yet.
    """

    nodes: list[tuple[NodeInfo, str]]
    token: str
    starting: int


class Reservations:
    """Reservations in a store. Methods block, in any thread.

    Each raises `Unavailable` or `Ambiguous` if the server fails, and `CannotOpen` if the store was
    made without their table.
    """

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._mine: tuple[int, str, str] | None = None

    def reserve(self, node_id: int, most: int | None, token: str, timeout_s: float) -> str | None:
        """Reserve the place of a node, unless there are enough.

        Args:
            most: number of nodes that are enough; None: it is no worker's, and has its place.
            token: of the clients, if there is no other embedded node.
            timeout_s: of sessions. If nodes seem enough, those whose beats stand still for so long
                do not count.
        Returns:
            The token of the clients of all embedded nodes; None: there are enough.
        """
        before: dict[int, tuple[str, int]] = {}
        with self._connected() as connection:
            for is_last in (False, True):
                with connection.transaction():
                    connection.execute("SELECT 1 FROM cluster FOR UPDATE")
                    rows = connection.execute("SELECT id, session, beat FROM node").fetchall()
                    beats = {number: (session, beat) for number, session, beat in rows}
                    living = [number for number in beats if beats[number] != before.get(number)]
                    reserved = connection.execute(_RESERVED, (KEPT_S,)).fetchall()
                    to_come = [number for number, _, comes in reserved if comes]
                    if most is None or len({*living, *to_come}) < most:
                        # The token is kept: a node that was taken out may come back with it.
                        token = reserved[0][1] if reserved else token
                        machine = "" if most is None else socket.gethostname()
                        self._mine = (node_id, token, machine)
                        connection.execute(_FORGET, ([*living, *to_come],))
                        connection.execute(_WRITE, (*self._mine, False))
                        return token
                if not is_last:
                    before = beats
                    time.sleep(timeout_s)
        return None

    def notify(self) -> None:
        """Note that the node serves, if a place was reserved: it is kept as long as it lives."""
        if self._mine is not None:
            with self._connected() as connection:
                connection.execute(_WRITE, (*self._mine, True))

    def known(self) -> Known:
        """The nodes that serve, and the number of those that are to come."""
        with self._connected() as connection:
            rows = connection.execute(_KNOWN).fetchall()
            reserved = connection.execute(_RESERVED, (KEPT_S,)).fetchall()
        nodes = [(NodeInfo.from_bytes(info.encode()), machine or "") for info, machine in rows]
        token = reserved[0][1] if reserved else ""
        return Known(nodes, token, sum(comes for *_, comes in reserved))

    @contextlib.contextmanager
    def _connected(self) -> Iterator[PostgresConnection]:
        with contextlib.closing(self._store.connect()) as connection:
            try:
                yield connection
            except psycopg.errors.UndefinedTable as error:
                raise CannotOpen(
                    "the store has no table `reservation`: have `coordinator store sql` print its "
                    "tables again, and run that"
                ) from error
            except psycopg.Error as error:
                raise failure_of(error, is_sent=True) from error
