"""Queries of a Connect client, on machines where Spark's Python processes start slowly.

Spark gives a process of its driver ten seconds to start, whatever is configured, and fails the
query. Nothing has happened then, so the query is started again.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from tests.kit.patience import HANG_S

SLOW_START = "failed to connect back"


def start(writer: Any) -> Any:
    """The query of a writer."""
    deadline = time.monotonic() + HANG_S
    while True:
        try:
            return writer.start()
        except Exception as error:
            if SLOW_START not in str(error) or time.monotonic() > deadline:
                raise


def run(rows: Any, batch_function: Any, checkpoint: Path) -> Exception | None:
    """Run a query until all is read; its error, or None."""
    writer = rows.writeStream.foreachBatch(batch_function)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    deadline = time.monotonic() + HANG_S
    while True:
        query = start(writer)
        try:
            assert query.awaitTermination(2 * HANG_S)
            error = query.exception()
        except AssertionError:
            raise
        except Exception as raised:  # noqa: BLE001  # Which class it is, is Spark's to choose.
            error = raised
        if SLOW_START not in str(error) or time.monotonic() > deadline:
            return error
