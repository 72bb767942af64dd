"""Announcements: a query's source process tells its sink the ranges of each batch.

Spark gives a sink rows and a number, and knows the ranges itself; what its checkpoint's files look
like is its own affair. The process that plans batches and the process that runs the sink are both
below one Java process, on one machine, and see one folder for temporary files. There each source
announces the batch that it has planned or was asked for, before Spark reads or writes a row of it.
As long as it lives it holds a lock, since the number of a process that has died may come again.

The function of a stream whose rows Spark reads itself runs in the context of its batch. Any other
sink has to tell its query's announcement from those of others in the same Java process. It looks
for the batch's random id in what Spark says of the query's offsets, or in the checkpoint's entry
for the batch, as bytes, whatever the format.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

from coordinator.sources.file_systems import StorePath
from coordinator.sources.files import FileRange
from coordinator.spark.ranges import BatchRanges, GroupBatch
from coordinator.spark.sinks.protocol import SinkRefused

HAS_LOCKS = os.name == "posix"
if HAS_LOCKS:
    import fcntl
LOCK = ".lock"
"""Suffix of the file that the writer of an announcement has locked."""


class Announcement:
    """The newest batch of one source, as a file that vanishes with `withdraw`.

    Args:
        coordinator, group, topic: whose batches they are.
        stream: id of a stream whose rows Spark reads itself.
        java: id of the Java process; by default the one that started this process.
    """

    def __init__(
        self, coordinator: str, group: str, topic: str, stream: str = "", *, java: int | None = None
    ) -> None:
        self._of = {"coordinator": coordinator, "group": group, "topic": topic, "stream": stream}
        self._announced: Mapping[str, Any] | None = None
        self._java = java or os.getppid()
        self._path = _folder(self._java) / f"{os.getpid()}-{uuid.uuid4().hex[:8]}.json"
        self._lock: int | None = None  # Descriptor of the file that it has locked.

    def put(
        self,
        offset: Mapping[str, Any],  # Any: JSON, as Spark's offsets are.
        files: Sequence[FileRange] | None = None,
    ) -> None:
        """Announce a batch by its end, as Spark has it; a source without new rows says it again.

        Args:
            files: those that hold its rows, for `announced_files`; None: not known yet.
        Raises:
            OSError, SinkRefused: it cannot be announced; the batch before it is withdrawn, so no
                sink takes that one's ranges for it. RuntimeError: not even that can be done.
        """
        if offset == self._announced and files is None:
            return
        content = {**self._of, "end": offset, "files": files}
        try:
            if self._lock is None:
                _sweep(_folder(self._java).parent)
            _folder(self._java).mkdir(mode=0o700, exist_ok=True)
            self._lock = self._lock or _locked(self._path.with_suffix(LOCK))
            hidden = self._path.with_suffix(".new")
            hidden.write_text(json.dumps(content))
            hidden.replace(self._path)
        except (OSError, SinkRefused):
            self._announced = None
            try:
                self.withdraw()
            except OSError as error:
                raise RuntimeError(f"{self._path} is old and cannot be deleted") from error
            raise
        self._announced = offset

    def withdraw(self) -> None:
        """The source has stopped."""
        self._path.unlink(missing_ok=True)
        lock, self._lock = self._lock, None
        if lock is not None:
            self._path.with_suffix(LOCK).unlink(missing_ok=True)
            os.close(lock)


_RUNNING: ContextVar[GroupBatch | None] = ContextVar("running", default=None)


@contextlib.contextmanager
def running(batch: GroupBatch) -> Iterator[None]:
    """Have sinks that are called inside write this batch."""
    token = _RUNNING.set(batch)
    try:
        yield
    finally:
        _RUNNING.reset(token)


def batch_of(rows: Any, batch_id: int, checkpoint: StorePath | None = None) -> GroupBatch:
    """The batch that the query of a pyspark DataFrame is running.

    Args:
        checkpoint: the query's, if it is known.
    Raises:
        SinkRefused: there is none, or there are several that cannot be told from each other.
    """
    here = _RUNNING.get()
    if here is not None:
        return here
    offsets = _offsets_of_query(rows)
    if offsets is None and checkpoint is not None:
        offsets = (checkpoint / "offsets" / str(batch_id)).read().decode(errors="replace")
    return announced_batch(java_process(rows), batch_id, offsets)


def announced_batch(java: int, batch_id: int, offsets: str | None = None) -> GroupBatch:
    """The batch that a query of this Java process is running.

    Args:
        java: id of the Java process. offsets: a text in which the offsets are that the query's
            batch ends at; None: not known.
    Raises:
        SinkRefused: as `batch_of`.
    """
    announcements = _announcements(java)
    if offsets is not None:
        text = offsets.replace("\\", "")  # In checkpoints they may be text in JSON.
        announcements = [
            one for one in announcements if json.dumps({"id": one["end"]["id"]})[1:-1] in text
        ]
    if not announcements:
        raise SinkRefused(
            f"the rows of batch {batch_id} are of no group's stream that has announced it in "
            f"{_folder(java)}: they must come from `streaming`, or from format('consumer_group') "
            "alone, in the same Spark application"
        )
    if len(announcements) > 1 and any(one["end"]["ranges"] for one in announcements):
        groups = ", ".join(sorted({one["group"] for one in announcements}))
        raise SinkRefused(
            f"{len(announcements)} queries run in this Spark application, of {groups}: give each "
            "sink its query's checkpoint=, so that it knows its own batches"
        )
    return _batch(announcements[0])


class AnnouncedFiles(NamedTuple):
    """A batch, and the files that hold its rows."""

    announced: GroupBatch
    files: list[FileRange]


def announced_files(java: int, stream: str) -> AnnouncedFiles:
    """The batch that a stream whose rows Spark reads itself is running.

    Raises:
        SinkRefused: there is none, or its source was not asked for its files.
    """
    for content in _announcements(java):
        if content["stream"] == stream and content["files"] is not None:
            return AnnouncedFiles(_batch(content), [FileRange(*file) for file in content["files"]])
    raise SinkRefused(f"the source of this stream has announced no batch in {_folder(java)}")


def java_process(rows: Any) -> int:
    """Id of the Java process of a DataFrame's driver."""
    session = rows.sparkSession
    gateway = getattr(session, "_jvm", None)
    if gateway is not None:
        return int(gateway.java.lang.ProcessHandle.current().pid())
    return os.getppid()  # Spark Connect runs the function in a process that Java has started.


# --- Inside ---


def _announcements(java: int) -> list[dict[str, Any]]:
    announcements = []
    for path in sorted(_folder(java).glob("*.json")):
        try:
            content = json.loads(path.read_text())
        except FileNotFoundError:
            continue
        if not _is_announced(path):
            _forget(path)
        else:
            announcements.append(content)
    return announcements


def _batch(content: Mapping[str, Any]) -> GroupBatch:
    batch = BatchRanges.from_offset(content["end"])
    return GroupBatch(content["coordinator"], content["group"], content["topic"], batch)


def _offsets_of_query(rows: Any) -> str | None:
    """Offsets of the query that runs a batch, as Spark tells them; None: it does not.

    Batches run in a clone of their query's session, which knows no queries: the first one does.
    """
    session = rows.sparkSession
    if not hasattr(session, "_jsparkSession"):
        return None  # Spark Connect's.
    from py4j.protocol import Py4JError

    first = type(session)._instantiatedSession
    query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId")
    query = first.streams.get(query_id) if first and query_id else None
    if query is None:
        return None
    try:
        return str(query._jsq.streamingQuery().availableOffsets().toString())
    except Py4JError:  # It is no part of Spark's interface.
        return None


def _folder(java: int) -> Path:
    """Folder of a Java process's announcements; nobody else may write there."""
    user = os.getuid() if hasattr(os, "getuid") else 0  # Containers run under ids without names.
    base = Path(tempfile.gettempdir(), f"consumer-group-{user}")
    base.mkdir(mode=0o700, exist_ok=True)
    status = base.lstat()  # Not of what a link leads to: anyone may have made the link.
    if status.st_uid != user or not stat.S_ISDIR(status.st_mode):
        raise SinkRefused(f"{base} belongs to another user: delete it, or set TMPDIR")
    if os.name == "posix" and status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SinkRefused(f"others may write in {base}: delete it, or set TMPDIR")
    return base / str(java)


def _sweep(base: Path) -> None:
    """Delete what sources have left that died with their Java process."""
    for folder in base.iterdir():
        if not folder.name.isdecimal() or _is_alive(int(folder.name)):
            continue
        for path in folder.glob("*.json"):
            # A container that shares the folder has processes that we do not see.
            if not _is_announced(path):
                _forget(path)
        with contextlib.suppress(OSError):
            folder.rmdir()


def _locked(path: Path) -> int | None:
    """Descriptor of a new file that is locked until it is closed; None: the system has no locks."""
    if not HAS_LOCKS:
        return None
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock


def _is_announced(path: Path) -> bool:
    """True while the process that has written an announcement lives."""
    try:
        lock = os.open(path.with_suffix(LOCK), os.O_RDWR)
    except FileNotFoundError:
        return _is_alive(int(path.name.partition("-")[0]))
    try:
        # Shared, so that two who look at once do not take each other for the writer.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def _forget(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_suffix(LOCK).unlink(missing_ok=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
