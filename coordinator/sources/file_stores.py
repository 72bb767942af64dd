"""The stores behind `StorePath`: the local disk, and whatever pyarrow or fsspec opens."""

from __future__ import annotations

import errno
import functools
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, NamedTuple, Protocol

ATOMIC_WRITES = frozenset({"s3", "gs", "gcs", "abfs"})
"""Types of pyarrow's file systems where a file is there once it is whole, and not before."""


class StoreEntry(NamedTuple):
    """A file or folder as it was when it was looked at; times in nanoseconds since 1970.

    file_id: the inode on a local disk; 0 elsewhere. changed_ns: of content or metadata.
    """

    name: str
    is_folder: bool
    size: int
    modified_ns: int
    changed_ns: int
    file_id: int


def joined(path: str, name: str) -> str:
    return f"{path.rstrip('/')}/{name}" if path else name


class Store(Protocol):
    """Files and folders by path on one file system; methods as those of `StorePath`."""

    def entries(self, path: str) -> list[StoreEntry]: ...
    def stat(self, path: str) -> StoreEntry | None: ...
    def open(self, path: str) -> Any: ...
    def write(self, path: str, content: bytes) -> None: ...
    def writer(self, path: str) -> Any: ...
    def delete(self, path: str) -> None: ...
    def delete_folder(self, path: str) -> None: ...
    def move(self, path: str, to: str) -> None: ...


# --- The local disk ---------------------------------------------------------------------------


class LocalStore:
    def entries(self, path: str) -> list[StoreEntry]:
        entries = []
        with os.scandir(path) as listed:
            for entry in listed:
                try:
                    entries.append(_entry(entry.name, entry.stat()))
                except FileNotFoundError:
                    if entry.is_symlink():
                        raise  # It leads nowhere: rows that should be here are not.
        return entries

    def stat(self, path: str) -> StoreEntry | None:
        try:
            return _entry(os.path.basename(path), os.stat(path))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def open(self, path: str) -> IO[bytes]:
        return open(path, "rb")

    def write(self, path: str, content: bytes) -> None:
        folder, name = os.path.split(path)
        _make_folder(folder)
        hidden = os.path.join(folder, f".{name}.{uuid.uuid4().hex[:8]}")
        with open(hidden, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(hidden, path)
        _sync_folder(folder or ".")

    def writer(self, path: str) -> IO[bytes]:
        folder = os.path.dirname(path)
        _make_folder(folder)
        file = open(path, "wb")  # noqa: SIM115  # The caller closes it.
        try:
            _sync_folder(folder or ".")
        except BaseException:
            file.close()
            raise
        return file

    def delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(path)

    def delete_folder(self, path: str) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(path)

    def move(self, path: str, to: str) -> None:
        _make_folder(os.path.dirname(to))
        os.replace(path, to)


def _entry(name: str, status: os.stat_result) -> StoreEntry:
    is_folder = stat.S_ISDIR(status.st_mode)
    return StoreEntry(
        name, is_folder, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino
    )


def _make_folder(folder: str) -> None:
    """Make a folder and those above it that are missing, so that they outlive a power failure."""
    if not folder or os.path.isdir(folder):
        return
    above = os.path.dirname(folder.rstrip("/"))
    _make_folder(above)
    os.makedirs(folder, exist_ok=True)
    _sync_folder(above or ".")


def _sync_folder(folder: str) -> None:
    """Make a rename, or a new entry, durable, where the operating system lets folders be opened."""
    if hasattr(os, "O_DIRECTORY"):
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(at)
        finally:
            os.close(at)


LOCAL = LocalStore()


# --- Everything else --------------------------------------------------------------------------


class RemoteStore:
    """A pyarrow.fs.FileSystem below a root."""

    def __init__(self, base: str, files: Any, root: str) -> None:
        self._base, self.files, self._root = base, files, root
        # A file system of fsspec, which may remember listings: new files would not be seen.
        self._fresh = getattr(getattr(files, "handler", None), "fs", None)

    def at(self, path: str) -> str:
        return joined(self._root, path) if path else self._root

    def entries(self, path: str) -> list[StoreEntry]:
        from pyarrow.fs import FileSelector

        self._forget_listing()
        with _named(self._base, path):
            return [_entry_of(i) for i in self.files.get_file_info(FileSelector(self.at(path)))]

    def stat(self, path: str) -> StoreEntry | None:
        from pyarrow.fs import FileType

        self._forget_listing()
        with _named(self._base, path):
            info = self.files.get_file_info(self.at(path))
        return None if info.type == FileType.NotFound else _entry_of(info)

    def open(self, path: str) -> Any:
        with _named(self._base, path):
            return self.files.open_input_file(self.at(path))

    def write(self, path: str, content: bytes) -> None:
        with _named(self._base, path):
            if self.files.type_name in ATOMIC_WRITES:
                with self.files.open_output_stream(self.at(path)) as file:
                    file.write(content)
                return
            folder, _, name = path.rpartition("/")
            hidden = self.at(joined(folder, f".{name}.{uuid.uuid4().hex[:8]}"))
            self.files.create_dir(self.at(folder), recursive=True)
            with self.files.open_output_stream(hidden) as file:
                file.write(content)
            self.files.move(hidden, self.at(path))

    def writer(self, path: str) -> Any:
        with _named(self._base, path):
            if self.files.type_name not in ATOMIC_WRITES:
                self.files.create_dir(self.at(path.rpartition("/")[0]), recursive=True)
            return self.files.open_output_stream(self.at(path))

    def delete(self, path: str) -> None:
        if self.stat(path) is not None:
            with _named(self._base, path):
                self.files.delete_file(self.at(path))

    def delete_folder(self, path: str) -> None:
        with _named(self._base, path):
            self.files.delete_dir_contents(self.at(path), missing_dir_ok=True)
            if self.stat(path) is not None:
                self.files.delete_dir(self.at(path))

    def move(self, path: str, to: str) -> None:
        with _named(self._base, path):
            if self.files.type_name not in ATOMIC_WRITES:
                self.files.create_dir(self.at(to.rpartition("/")[0]), recursive=True)
            self.files.move(self.at(path), self.at(to))

    def _forget_listing(self) -> None:
        if self._fresh is not None:
            self._fresh.invalidate_cache()


def _entry_of(info: Any) -> StoreEntry:
    from pyarrow.fs import FileType

    modified_ns = info.mtime_ns or 0
    is_folder = info.type == FileType.Directory
    return StoreEntry(info.base_name, is_folder, info.size or 0, modified_ns, modified_ns, 0)


@contextmanager
def _named(base: str, path: str) -> Iterator[None]:
    """Have errors about files name the location, as those of the operating system do."""
    try:
        yield
    except OSError as error:
        if error.filename is not None:
            raise
        number = error.errno or _NUMBERS.get(type(error), errno.EIO)
        raise OSError(number, str(error), f"{base}/{path}") from error


_NUMBERS = {FileNotFoundError: errno.ENOENT, PermissionError: errno.EACCES}
"""Numbers of errors that fsspec raises without one."""


@functools.lru_cache(64)
def remote_store(pid: int, base: str, settings: str) -> RemoteStore:
    """One file system for each process: their threads do not survive a fork."""
    try:
        import pyarrow as pa
        from pyarrow import fs
    except ImportError:
        raise ValueError(f"{base} needs pyarrow: install the extra `files`") from None
    try:
        files, root = fs.FileSystem.from_uri(f"{base}/" + (f"?{settings}" if settings else ""))
        return RemoteStore(base, files, root.rstrip("/"))
    except pa.ArrowInvalid as error:
        if "nrecognized filesystem" not in str(error):
            raise ValueError(f"{base}: {error}") from None
    except NotImplementedError:
        pass  # This build of pyarrow lacks it.
    try:
        import fsspec
    except ImportError:
        raise ValueError(
            f"pyarrow has no file system for {base}: install fsspec and the scheme's package"
        ) from None
    try:
        files, root = fsspec.core.url_to_fs(f"{base}/", **_pairs(settings))
    except (ValueError, ImportError) as error:
        raise ValueError(f"{base}: {error}") from None
    return RemoteStore(base, fs.PyFileSystem(fs.FSSpecHandler(files)), root.rstrip("/"))


def _pairs(settings: str) -> dict[str, str]:
    from urllib.parse import parse_qsl

    return dict(parse_qsl(settings, strict_parsing=bool(settings)))
