"""Number of a sink's refused batches, which the program also reads when it uses Spark Connect.

With Spark Connect the function of `foreachBatch` is a copy that runs in a process of the server.
The copy counts in the configuration of the client's session, which is kept on the server, under a
key of its own; the client adds up the copies.
"""

from __future__ import annotations

import contextlib
import sys
import uuid
from typing import Any

_KEYS = "spark.consumerGroup.refusedBatches"


class RefusedBatches:
    """A number that copies of this object raise, and the object that was copied reads."""

    def __init__(self) -> None:
        self._here = 0
        self._sink = uuid.uuid4().hex
        self._copy = ""
        self._session: Any = None  # Any: a Connect session; of a copy, the one it was sent by.

    def __getstate__(self) -> str:
        self._session = _connect_session()
        return self._sink

    def __setstate__(self, sink: str) -> None:
        self.__init__()  # type: ignore[misc]
        self._sink, self._copy = sink, uuid.uuid4().hex
        # Batches run in sessions of their own, cloned from this one.
        self._session = _connect_session()

    def add(self) -> None:
        """Count a batch."""
        self._here += 1
        if self._copy and self._session is not None:
            self._session.conf.set(f"{_KEYS}.{self._sink}.{self._copy}", str(self._here))

    def total(self) -> int:
        """Batches of this object and of its copies.

        Raises:
            pyspark's error: the Connect session is stopped, or the server is not reached.
        """
        if self._copy or self._session is None:
            return self._here
        counts = self._session.conf.getAll
        prefix = f"{_KEYS}.{self._sink}."
        return self._here + sum(int(n) for key, n in counts.items() if key.startswith(prefix))


def _connect_session() -> Any:
    """The active session of Spark Connect; None: there is none."""
    connect = sys.modules.get("pyspark.sql.connect.session")
    if connect is not None:
        with contextlib.suppress(connect.PySparkRuntimeError):
            return connect.SparkSession.active()
    return None
