"""Every log the project has, opened fresh for each test of the one conformance suite."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.storage.log import GroupLog
from coordinator.storage.memory import MemoryLog
from coordinator.storage.sqlite import SqliteLog

SHARDS = 4
OPENERS: dict[str, Callable[[Path], GroupLog]] = {
    "memory": lambda _: MemoryLog(),
    "sqlite": lambda folder: SqliteLog(folder, shards=SHARDS),
}


@pytest.fixture(params=OPENERS)
async def log(request, tmp_path):
    opened = OPENERS[request.param](tmp_path)
    yield opened
    await opened.close()


@contextlib.asynccontextmanager
async def opened(folder: Path, **more):
    log = SqliteLog(folder, shards=SHARDS, **more)
    try:
        yield log
    finally:
        await log.close()
