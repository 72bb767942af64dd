"""Marks: short texts that identify the rows before an offset, and are stored with it.

A mark names the file that holds the row before the offset, where the file begins, the bytes of it
that counted and a digest of them. The files in front of it are compared with the group's record
(`recorded.py`), of which the mark has the id. It also counts the files behind the offset that were
gone: one that was read may be deleted.

    {"v": 2, "record": "…", "at": 71, "gone": 0, "file": "c.csv", "start": 70, "size": 4100,
     "digest": "…"}

Without a record, files follow each other by name. Where one comes or goes in front, the named file
begins at another offset. A name of twenty digits says where its file begins, so that files may be
deleted from the front of such a log.

A digest covers the first and the last 4 KiB, and no times: copies of a log on several machines
have one mark. What changes only in the middle of a file and leaves its size as it was is therefore
not noticed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from coordinator.sources.base import LogChanged
from coordinator.sources.file_systems import StorePath

VERSION = 2
BASE_OFFSET = re.compile(r"\d{20}")
_TEXTS, _NUMBERS = ("file", "digest", "record"), ("start", "size", "at", "gone")


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of a partition. `size`: the bytes that count. `has_base`: its name says `start`."""

    name: str
    start: int
    rows: int
    size: int
    digest: str
    has_base: bool
    grows: bool


_NONE = Segment("", 0, 0, 0, "", has_base=False, grows=False)


def make_mark(
    segments: Sequence[Segment], offset: int, record: str = "", gone: Sequence[range] = ()
) -> str:
    """Mark of an offset; empty if there is no row before it.

    Args:
        record: id of the group's record of the files; empty: they follow each other by name.
        gone: the rows of recorded files that are gone.
    """
    last = next((s for s in reversed(segments) if s.rows and s.start < offset), _NONE)
    if not offset or (last is _NONE and not record):
        return ""
    content = {
        "v": VERSION,
        "record": record,
        "at": offset,
        "gone": _unread(gone, offset),
        "file": last.name,
        "start": last.start,
        "size": last.size,
        "digest": last.digest,
    }
    return json.dumps(content, separators=(",", ":"))


def check_mark(
    mark: str,
    segments: Sequence[Segment],
    folder: StorePath,
    digest_of: Callable[[str, int], str],
    record: str = "",
    gone: Sequence[range] = (),
) -> None:
    """Compare the files of a partition with a mark.

    Args:
        folder: where they are, for messages.
        digest_of: returns the digest of the first bytes of a file, by name and size.
        record, gone: as for `make_mark`.
    Raises:
        LogChanged: see `Snapshot`. A mark that cannot be read, such as one of another version, is
            taken as none.
    """
    content = _parsed(mark) or {}
    if _unread(gone, content.get("at", 0)) > content.get("gone", 0):
        raise _gone(
            f"a file below {folder} is gone, which the group has recorded: its rows began at "
            f"offset {gone[-1].start}"
        )
    if not content:
        return
    if content["record"] not in ("", record):
        raise _moved(
            f"the files below {folder} are not in the order that the group has recorded, "
            "in which rows were counted"
        )
    last = next((s for s in segments if s.name == content["file"]), None)
    if last is not None:
        _check_last(content, last, folder, digest_of)
    elif not record and not _was_cut_off(content["file"], segments):
        raise _gone(f"{folder / content['file']} is gone, and its rows were counted")


def _unread(gone: Sequence[range], offset: int) -> int:
    """The number of files that are gone and have rows from an offset on."""
    return sum(rows.stop > offset for rows in gone)


def _check_last(
    content: dict[str, Any], last: Segment, folder: StorePath, digest_of: Callable[[str, int], str]
) -> None:
    """Compare the file that holds the row before the offset."""
    path = folder / last.name
    if last.start != content["start"]:
        raise (_gone if last.start < content["start"] else _moved)(
            f"{path} begins at offset {last.start}, and began at {content['start']}: files in "
            "front of it came, changed or went (names sort as text: part-10 stands before part-9)"
        )
    if last.size < content["size"]:
        raise _gone(f"{path} has shrunk from {content['size']} to {last.size} bytes")
    is_whole = last.size == content["size"]
    digest = last.digest if is_whole else digest_of(last.name, content["size"])
    if digest != content["digest"] or not (is_whole or last.grows):
        raise _moved(f"{path} was written over since its rows were counted")


def _was_cut_off(name: str, left: Sequence[Segment]) -> bool:
    """True if a file was deleted from the front of a log whose names are offsets, which may be."""
    return bool(BASE_OFFSET.fullmatch(name.rpartition(".")[0])) and all(
        s.has_base and s.name > name for s in left
    )


def _parsed(mark: str) -> dict[str, Any] | None:
    """The content of a mark; None if there is none, or it is not one of ours."""
    try:
        content = json.loads(mark) if mark else None
        if not isinstance(content, dict) or content["v"] != VERSION:
            return None
        is_ours = all(isinstance(content[key], str) for key in _TEXTS) and all(
            type(content[key]) is int and content[key] >= 0 for key in _NUMBERS
        )
        return content if is_ours else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


REMEDY = (
    "put back what was read, or read the partition anew: reset-offsets for the group, and a new "
    "checkpoint for a query"
)


def _gone(subject: str) -> LogChanged:
    return LogChanged(f"{subject}: {REMEDY}", rows_are_gone=True)


def _moved(subject: str) -> LogChanged:
    return LogChanged(f"{subject}: {REMEDY}")
