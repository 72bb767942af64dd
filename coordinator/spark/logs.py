"""Warnings of this library in the logs of Spark's driver and executors."""

from __future__ import annotations

import logging
import os

_OF_WORKERS = "PYTHON_WORKER_FACTORY_"
"""Prefix of variables in the environment of Spark's Python workers, but not of drivers."""
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TIME = "%y/%m/%d %H:%M:%S"


def is_spark_worker() -> bool:
    """True in Python processes that Spark has started: of sources and of tasks."""
    return any(name.startswith(_OF_WORKERS) for name in os.environ)


def log_like_spark() -> None:
    """Write warnings as lines of Spark's log, where nobody has configured logging.

    Python would write them without time, level and name. What such a process writes to standard
    error is in the log of the driver, or of the executor.
    """
    logger = logging.getLogger("coordinator")
    if not is_spark_worker() or logger.hasHandlers():
        return
    handler = logging.StreamHandler()
    formatter = logging.Formatter(_FORMAT, _TIME)
    handler.setFormatter(formatter)
    logger.addHandler(handler)
