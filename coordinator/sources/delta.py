"""Delta tables as directories of files, as long as they were only appended to.

The table's log says which files count. Files that a write has not committed, or never will, do not.
A table of which rows were changed, deleted or compacted is refused: files that were read would come
again under other names.
"""

from __future__ import annotations

import json
from functools import lru_cache
from urllib.parse import unquote

from coordinator.sources.base import BadLayout
from coordinator.sources.file_systems import StorePath

LOG = "_delta_log"


def files_of_table(directory: StorePath) -> frozenset[str] | None:
    """Paths of a table's files below its directory; None: its log names none, as in no table.

    Raises:
        BadLayout: files were removed, or the log does not go back to the beginning.
    """
    log = directory / LOG
    commits = [e for e in log.entries() if e.name.endswith(".json") and e.name[:-5].isdecimal()]
    added: set[str] = set()
    for number, entry in enumerate(commits):
        path = log / entry.name
        if int(entry.name[:-5]) != number:
            raise BadLayout(
                f"{log} does not hold the table's commits from the first on, so which files count "
                "cannot be told: write the rows out as files first"
            )
        added |= _added(path, entry.size)
    return frozenset(added) or None


@lru_cache(4_096)
def _added(path: StorePath, size: int) -> frozenset[str]:
    """Files that a commit adds. Raises `BadLayout` if it removes some."""
    added = set()
    for line in path.read().splitlines():
        try:
            action = json.loads(line)
        except ValueError as error:
            raise BadLayout(f"{path} is no commit of a Delta table: {error}") from error
        if not isinstance(action, dict):
            continue
        add = action.get("add") or {}
        if "remove" in action or add.get("deletionVector"):
            raise BadLayout(
                f"{path}: rows of this Delta table were changed, deleted or compacted, so offsets "
                "would mean other rows: write the rows out as files first"
            )
        if add:
            added.add(unquote(str(add.get("path", ""))))
    return frozenset(added)
