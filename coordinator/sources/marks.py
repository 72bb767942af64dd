"""Marks: short texts that identify the rows before an offset, and are stored with it.

Offsets in a directory of files are counted in order of name. A file that sorts in front of one
that was read, or that shrinks, is written over or goes away, moves every offset behind it: rows
come twice or never. A mark names the file that holds the row before the offset, with the bytes
of it that counted and a digest of them, and the files in front of it: the nearest by name, the
others by sums over powers of two of them, so that 10,000 files take some 200 characters and a
change is found by bisection. Files without rows are left out: they move nothing.

    {"v": 1, "file": "c.csv", "start": 70, "size": 4100, "digest": "…", "files": 3,
     "near": [["b.csv", "…"], ["a.csv", "…"]], "far": [[16, "…"], …]}

A file's hash covers its name, its rows, its size and a digest of the first and last 4 KiB, not
its times: copies of a log on several machines have one mark. What changes only
in the middle of a file and leaves its size as it was is therefore not noticed.

Where the group has recorded the order of the files (`recorded.py`), names mean nothing, and the
files of one record never move. The mark has the record's id in place of the files in front, and
counts the files behind the offset that were gone: one that was read may be deleted. Such marks have
"v": 2.

    {"v": 2, "record": "…", "at": 71, "gone": 0, "file": "c.csv", "start": 70, "size": 4100,
     "digest": "…"}

Sums count from the last file backwards. Where names say offsets (twenty digits), files may be
deleted from the front, and what is left is still compared.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from coordinator.sources.base import LogChanged
from coordinator.sources.file_systems import StorePath

VERSION, VERSION_RECORDED = 1, 2
BASE_OFFSET = re.compile(r"\d{20}")
NEAR, NEAR_CHARACTERS = 8, 1_200
"""Limits of the files before the last that a mark names: their number and total length."""
_SUM_BITS = 48


@dataclass(frozen=True, slots=True)
class Segment:
    """A file of a partition. `size`: the bytes that count. `has_base`: its name says `start`."""

    name: str
    start: int
    rows: int
    size: int
    digest: str
    changed_ns: int
    has_base: bool
    grows: bool


def make_mark(
    segments: Sequence[Segment], offset: int, record: str = "", gone: Sequence[range] = ()
) -> str:
    """Mark of an offset; empty if there is no row before it.

    Args:
        record: id of the group's record of the files; empty: they count in order of name.
        gone: the rows of recorded files that are gone.
    """
    if record:
        return _recorded_mark(segments, offset, record, gone) if offset else ""
    counted = [s for s in segments if s.rows and s.start < offset]
    if not counted:
        return ""
    last, front = counted[-1], counted[-2::-1]  # Nearest first.
    near: list[list[str]] = []
    for segment in front[:NEAR]:
        near.append([segment.name, f"{_hash(segment):012x}"])
        if len(json.dumps(near)) > NEAR_CHARACTERS:
            near.pop()
            break
    content = {
        "v": VERSION,
        "file": last.name,
        "start": last.start,
        "size": last.size,
        "digest": last.digest,
        "files": len(counted),
        "near": near,
        "far": [[k, f"{s:012x}"] for k, s in _sums(front, _steps(len(near), len(front)))],
    }
    return json.dumps(content, separators=(",", ":"))


def _recorded_mark(
    segments: Sequence[Segment], offset: int, record: str, gone: Sequence[range]
) -> str:
    last = next((s for s in reversed(segments) if s.rows and s.start < offset), _NONE)
    content = {
        "v": VERSION_RECORDED,
        "record": record,
        "at": offset,
        "gone": _unread(gone, offset),
        "file": last.name,
        "start": last.start,
        "size": last.size,
        "digest": last.digest,
    }
    return json.dumps(content, separators=(",", ":"))


_NONE = Segment("", 0, 0, 0, "", 0, has_base=False, grows=False)


def _unread(gone: Sequence[range], offset: int) -> int:
    """The number of files that are gone and have rows from an offset on."""
    return sum(rows.stop > offset for rows in gone)


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
        record: id of the group's record of the files; empty: they count in order of name.
        gone: the rows of recorded files that are gone.
    Raises:
        LogChanged: see `Snapshot`. A mark that cannot be read, such as a later version's, is
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
    if content["v"] == VERSION_RECORDED:
        if content["record"] != record:
            raise _moved(
                f"the files below {folder} are not in the order that the group has recorded, "
                "in which rows were counted"
            )
        last = next((s for s in segments if s.name == content["file"]), None)
        if last is not None:
            _check_last(content, last, folder, digest_of)
        return
    here = [s for s in segments if s.rows]
    place = folder / content["file"]
    found = next((i for i, s in enumerate(here) if s.name == content["file"]), None)
    if found is None:
        if not _was_cut_off(content["file"], here):
            raise _gone(f"{place} is gone or empty, and its rows were counted")
        return
    front = here[:found][::-1]  # Nearest first.
    _check_near(content, front, folder)
    _check_far(content, front, folder)
    _check_last(content, here[found], folder, digest_of)


def _check_last(
    content: dict[str, Any], last: Segment, folder: StorePath, digest_of: Callable[[str, int], str]
) -> None:
    """Compare the file that holds the row before the offset."""
    place = folder / last.name
    if last.start != content["start"]:
        raise _moved(f"{place} begins at offset {last.start}, and began at {content['start']}")
    if last.size < content["size"]:
        raise _gone(f"{place} has shrunk from {content['size']} to {last.size} bytes")
    is_whole = last.size == content["size"]
    digest = last.digest if is_whole else digest_of(last.name, content["size"])
    if digest != content["digest"] or not (is_whole or last.grows):
        raise _moved(f"{place} was written over since its rows were counted")


def _check_near(content: dict[str, Any], front: Sequence[Segment], folder: StorePath) -> None:
    """Compare the files that the mark names."""
    near = dict(content["near"])
    names_all = content["files"] - 1 == len(near)
    reach = "" if names_all else min(near, default=content["file"])
    window = {s.name: s for s in front if s.name >= reach}
    for name, segment in reversed(window.items()):
        # In a log whose names are offsets, a file put back at the front moves nothing.
        if name not in near and not (segment.has_base and name < min(near, default=name + "~")):
            raise _came(folder / name, content["file"])
    for name, hashed in reversed(near.items()):
        if name in window:
            if f"{_hash(window[name]):012x}" != hashed:
                raise _moved(f"{folder / name} was written over since its rows were counted")
        elif not _was_cut_off(name, front):
            raise _gone(f"{folder / name} is gone, and its rows were counted")


def _check_far(content: dict[str, Any], front: Sequence[Segment], folder: StorePath) -> None:
    """Compare the sums over growing numbers of files; a change lies between two of them."""
    old_count = content["files"] - 1
    now = dict(_sums(front, [k for k, _ in content["far"]]))
    same = len(content["near"])
    for k, hashed in content["far"]:
        if k in now and f"{now[k]:012x}" == hashed:
            same = k
            continue
        between = front[same:k]
        if len(front) < old_count:
            if all(s.has_base for s in front) and k > len(front):
                return  # The rest was deleted from the front.
            edge = front[same - 1].name if same else content["file"]
            raise _gone(f"a file in front of {folder / edge} is gone, and its rows were counted")
        newest = folder / max(between, key=lambda s: s.changed_ns).name
        if len(front) > old_count:
            raise _came(newest, content["file"])
        raise _moved(f"{newest} was written over or renamed since its rows were counted")
    if content["far"] and len(front) > old_count and not front[-1].has_base:
        raise _came(folder / front[-1].name, content["file"])


def _was_cut_off(name: str, left: Sequence[Segment]) -> bool:
    """True if a file was deleted from the front of a log whose names are offsets, which may be."""
    return bool(BASE_OFFSET.fullmatch(name.rpartition(".")[0])) and all(
        s.has_base and s.name > name for s in left
    )


# --- Sums -------------------------------------------------------------------------------------


@lru_cache(131_072)
def _hash(segment: Segment) -> int:
    text = f"{segment.name}\0{segment.rows}\0{segment.size}\0{segment.digest}"
    raw = hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=6).digest()
    return int.from_bytes(raw, "big")


def _steps(near: int, files: int) -> list[int]:
    """Numbers of files that sums are taken over: powers of two, and all."""
    if files <= near:
        return []
    powers = [1 << bit for bit in range(files.bit_length()) if near < 1 << bit < files]
    return [*powers, files]


def _sums(front: Sequence[Segment], steps: Sequence[int]) -> list[tuple[int, int]]:
    """The sums of the hashes of the nearest k files, for each k there are files for."""
    sums: list[tuple[int, int]] = []
    total, done = 0, 0
    for k in steps:
        if k > len(front):
            break
        total += sum(map(_hash, front[done:k]))
        done = k
        sums.append((k, total % (1 << _SUM_BITS)))
    return sums


def _parsed(mark: str) -> dict[str, Any] | None:
    """The content of a mark; None if there is none, or it is not one of ours."""
    try:
        content = json.loads(mark) if mark else None
        if not isinstance(content, dict) or content["v"] not in (VERSION, VERSION_RECORDED):
            return None
        if content["v"] == VERSION_RECORDED:
            texts = [content[key] for key in ("file", "digest", "record")]
            numbers = [content[key] for key in ("start", "size", "at", "gone")]
            is_ours = all(isinstance(t, str) for t in texts) and all(
                type(n) is int for n in numbers
            )
            return content if is_ours else None
        numbers = [content[key] for key in ("start", "size", "files")]
        texts = [content["file"], content["digest"], *(t for pair in content["near"] for t in pair)]
        steps = [k for k, _ in content["far"]]
        if (
            all(type(n) is int for n in (*numbers, *steps))
            and all(isinstance(t, str) for t in texts)
            and sorted({len(content["near"]), *steps, content["files"]})
            == [len(content["near"]), *steps, content["files"]]
        ):
            return {**content, "near": [[n, h] for n, h in content["near"]]}
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return None


# --- Messages ---------------------------------------------------------------------------------

REMEDY = (
    "put back what was read, or read the partition anew: reset-offsets for the group, and a new "
    "checkpoint for a query"
)


def _came(path: StorePath, behind: str) -> LogChanged:
    return LogChanged(
        f"{path} came in front of {behind}, which was counted already, so offsets would mean "
        "other rows: rename it to sort behind the last file (names sort as text: part-10 stands "
        f"before part-9), or {REMEDY}"
    )


def _gone(what: str) -> LogChanged:
    return LogChanged(f"{what}: {REMEDY}", rows_are_gone=True)


def _moved(what: str) -> LogChanged:
    return LogChanged(f"{what}: {REMEDY}")
