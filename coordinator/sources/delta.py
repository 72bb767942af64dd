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
    """Paths of a table's files below its directory; None: its log says nothing, as in no table.

    Raises:
        BadLayout: files were removed or lie elsewhere, or the log does not go back to the
            beginning.
    """
    log = directory / LOG
    commits = [e for e in log.entries() if e.name.endswith(".json") and e.name[:-5].isdecimal()]
    added: set[str] = set()
    is_table = False
    for number, entry in enumerate(commits):
        path = log / entry.name
        if int(entry.name[:-5]) != number:
            raise BadLayout(
                f"{log} does not hold the table's commits from the first on, so which files count "
                "cannot be told: write the rows out as files first"
            )
        here = _added(path, entry.size)
        is_table |= here is not None
        added |= here or frozenset()
    return frozenset(added) if is_table else None


@lru_cache(4_096)
def _added(path: StorePath, size: int) -> frozenset[str] | None:
    """Files that a commit adds; None: it says nothing of a table. Raises `BadLayout`, see above."""
    added = set()
    is_table = False
    for line in path.read().splitlines():
        try:
            action = json.loads(line)
        except ValueError as error:
            raise BadLayout(f"{path} is no commit of a Delta table: {error}") from error
        if not isinstance(action, dict):
            continue
        add = action.get("add") or {}
        is_table |= bool(add) or "metaData" in action or "protocol" in action
        if "remove" in action or add.get("deletionVector"):
            raise BadLayout(
                f"{path}: rows of this Delta table were changed, deleted or compacted, so offsets "
                "would mean other rows: write the rows out as files first"
            )
        if add:
            name = str(add.get("path", ""))
            if name.startswith("/") or "://" in name:
                raise BadLayout(
                    f"{path}: {name} is outside of its directory, as in a shallow clone, and would "
                    "not be read: write the rows out as files first"
                )
            added.add(unquote(name))
    return frozenset(added) if is_table else None
