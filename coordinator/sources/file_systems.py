"""Files and folders wherever users have them: on disk, in object stores, in HDFS.

    /data/logs, file:/data/logs, file:///data/logs      the local disk; needs nothing but Python
    s3://bucket/logs (also s3a:), gs:, abfs:, hdfs:      pyarrow's file systems (extra `files`)
    any other scheme                                     fsspec's, if the scheme's package is there

Settings of a store stand behind `?`, under pyarrow's names, and travel with the location:

    s3://bucket/logs?endpoint_override=http://127.0.0.1:9000&region=eu-central-1

Without them the usual environment counts (`AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, `AWS_REGION`,
profiles, instance roles), on the driver and on executors alike. Paths are taken literally: `%2F`
in a name stays `%2F`, as in the folders of Hive and Spark.

A `StorePath` is a value: it is pickled as text and opens its file system in the process that uses
it. Object stores have no folders; one is there as long as a file is below it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import IO, Any

from coordinator.sources.file_stores import (
    LOCAL,
    RemoteStore,
    Store,
    StoreEntry,
    joined,
    remote_store,
)

SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):(.*)", re.DOTALL)
ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs"}
"""Spark's and fsspec's names of schemes, and pyarrow's."""


@dataclass(frozen=True, slots=True, order=True)
class StorePath:
    """A path on some file system.

    Methods raise FileNotFoundError, PermissionError or another OSError; messages name the path.

    Args:
        base: scheme and authority, such as `s3://bucket`; empty: the local disk.
        path: below it; on a local disk a path of the operating system.
        settings: the text behind `?`.
    """

    base: str
    path: str
    settings: str = field(default="", repr=False)

    @classmethod
    def of(cls, location: str | os.PathLike[str]) -> StorePath:
        """Parse a location.

        Raises:
            ValueError: it is empty, or has a scheme and nothing else.
        """
        text = os.fspath(location)
        match = SCHEME.fullmatch(text)
        if match is None:
            if not text:
                raise ValueError("a location is empty")
            return cls("", text)
        scheme, rest = match[1].lower(), match[2]
        if scheme == "file":
            path = rest.removeprefix("//").removeprefix("localhost") if rest[:2] == "//" else rest
            if not path:
                raise ValueError(f"{text} names no path")
            return cls("", path)
        rest, _, settings = rest.partition("?")
        authority, _, path = rest.removeprefix("//").partition("/")
        if not authority and not path:
            raise ValueError(f"{text} names no path")
        return cls(f"{ALIASES.get(scheme, scheme)}://{authority}", path.strip("/"), settings)

    def __str__(self) -> str:
        """The location as a user would write it, without settings, which may hold secrets."""
        return f"{self.base}/{self.path}" if self.base else self.path

    def __truediv__(self, name: str) -> StorePath:
        return StorePath(self.base, joined(self.path, name), self.settings)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> StorePath:
        """The folder that holds it; the file system's root is its own."""
        return StorePath(self.base, os.path.dirname(self.path.rstrip("/")), self.settings)

    @property
    def is_local(self) -> bool:
        """Whether `path` is one of the operating system, which may be opened and memory-mapped."""
        return not self.base

    @property
    def absolute(self) -> StorePath:
        """The same place whatever the working directory is."""
        return replace(self, path=os.path.abspath(self.path)) if self.is_local else self

    @property
    def uri(self) -> str:
        """The place with its scheme, `file` on the local disk; nothing is escaped."""
        return f"file://{self.absolute.path}" if self.is_local else str(self)

    def entries(self) -> list[StoreEntry]:
        """Entries of a folder, sorted by name; folders in it are not entered."""
        return sorted(self._store().entries(self.path))

    def files_below(self) -> Iterator[tuple[StorePath, StoreEntry]]:
        """All files of a folder and of those in it, by folder and name."""
        for entry in self.entries():
            if entry.is_folder:
                yield from (self / entry.name).files_below()
            else:
                yield self / entry.name, entry

    def stat(self) -> StoreEntry | None:
        """The file or folder as it is now; None if it is not there."""
        return self._store().stat(self.path)

    def open(self) -> IO[bytes] | Any:  # Any: a pyarrow.NativeFile, which is like a file.
        """Open a file for reading at any position."""
        return self._store().open(self.path)

    def read(self) -> bytes:
        with self.open() as file:
            content: bytes = file.read()
            return content

    def write(self, content: bytes) -> None:
        """Write a file, replacing one that is there. Readers see all of it or none.

        On a local disk it is on stable storage when this returns. Folders are made as needed.
        """
        self._store().write(self.path, content)

    def writer(self) -> Any:
        """Open a new file to be written in pieces; a context manager with `write`.

        For names that nobody reads yet: an interrupted writer may leave part of the file. On a
        local disk the name is on stable storage when this returns; the content is the caller's.
        """
        return self._store().writer(self.path)

    def delete(self) -> None:
        """Delete a file; no error if it is not there."""
        self._store().delete(self.path)

    def delete_folder(self) -> None:
        """Delete a folder and everything in it; no error if it is not there."""
        self._store().delete_folder(self.path)

    def move(self, to: StorePath) -> None:
        """Rename a file on its file system. Object stores copy and delete, which is not atomic."""
        if (self.base, self.settings) != (to.base, to.settings):
            raise ValueError(f"{self} and {to} are not on one file system")
        self._store().move(self.path, to.path)

    def arrow(self) -> tuple[Any, str]:
        """The pyarrow.fs.FileSystem, and the path on it."""
        if self.is_local:
            from pyarrow.fs import LocalFileSystem

            return LocalFileSystem(), os.path.abspath(self.path)
        store = self._store()
        assert isinstance(store, RemoteStore)
        return store.files, store.at(self.path)

    # --- Inside ---

    def _store(self) -> Store:
        return remote_store(os.getpid(), self.base, self.settings) if self.base else LOCAL
