"""Metadata that our commits store with an offset.

    {"log": "…", "id": "5f3c0a9be210"}                       a reader's: mark of the rows before it
    {"reset": "2026-11-21T09:30:00+00:00", "id": "…"}        an operator's: `reset-offsets`

`log` is the mark of `coordinator.sources.base.Snapshot`. `id` is new with each commit, so that
an offset that was changed and set back can be told from the earlier commit. Commits of other
programs, and of versions before there was metadata, leave it empty: nothing is compared then.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from dataclasses import dataclass
from datetime import datetime

TOO_LARGE = "OFFSET_METADATA_TOO_LARGE"
"""Error code of a commit whose metadata the coordinator does not take for their size."""


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """Decoded metadata. `reset`: when an operator set the offset; empty: a reader committed it."""

    mark: str = ""
    reset: str = ""


def of_reader(mark: str, id: str | None = None) -> str:
    """Metadata of a commit by a reader; at most 4,000 characters.

    Args:
        mark: of the rows before the offset.
        id: shared by the attempts of several processes at one commit; None: a new one.
    """
    return _as_json({"log": mark} if mark else {}, id or new_id())


def of_reset(when: datetime) -> str:
    """Metadata of an offset that an operator sets."""
    return _as_json({"reset": when.isoformat(timespec="seconds")}, new_id())


def of_outsider() -> str:
    """Metadata of an offset that is neither read up to nor reset: a script sets it."""
    return _as_json({}, new_id())


def new_id() -> str:
    """A random id for one commit."""
    return uuid.uuid4().hex[:12]


def parsed(metadata: str) -> CommitMetadata:
    """Decode metadata; an empty CommitMetadata if it is not in this format."""
    try:
        content = json.loads(metadata) if metadata else None
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        return CommitMetadata()
    mark, reset = content.get("log"), content.get("reset")
    return CommitMetadata(
        mark if isinstance(mark, str) else "", reset if isinstance(reset, str) else ""
    )


def fingerprint(metadata: str) -> str:
    """Short hash of a commit's metadata, for checkpoints."""
    return hashlib.blake2b(metadata.encode(errors="replace"), digest_size=8).hexdigest()


def _as_json(content: dict[str, str], id: str) -> str:
    return json.dumps({**content, "id": id}, separators=(",", ":"))
