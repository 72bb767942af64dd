"""The log that the settings ask for."""

from __future__ import annotations

from pathlib import Path

from coordinator.settings import Settings
from coordinator.storage.log import GroupLog
from coordinator.storage.memory import MemoryLog
from coordinator.storage.sqlite import SqliteLog


def open_log(settings: Settings) -> GroupLog:
    """Open it; whoever asked closes it.

    Raises:
        CannotOpen: it is in use, was made by a newer version, or cannot be written.
    """
    if settings.store == "memory":
        return MemoryLog()
    return SqliteLog(Path(settings.data_dir), shards=settings.shards)
