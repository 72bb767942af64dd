"""Disks below SQLite: one that writes down what reaches it, and one that breaks when told to.

`Recorder` keeps every write and every finished sync in order, together with what the test
notes in between. `images_at` then says what a disk may hold if the power fails at a point:
all that was synced before it, and any part of what was not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw

SECTOR = 512
Op = tuple[Any, ...]
Image = dict[str, bytes]
"""File name to content."""


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._disk = disk
        self._name = Path(path).name if path else "temporary"

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802  # SQLite's names.
        self._disk.before("write", self._name)
        super().xWrite(data, offset)
        self._disk.after(("write", self._name, offset, bytes(data)))

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._disk.before("truncate", self._name)
        super().xTruncate(size)
        self._disk.after(("truncate", self._name, size))

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.before("sync", self._name)
        super().xSync(flags)
        self._disk.after(("sync", self._name))


class Disk(apsw.VFS):
    """A file system on top of the machine's own, by a name that connections ask for.

    Unregister it with `close`.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.ops: list[Op] = []
        self.broken: dict[str, tuple[type[apsw.Error], int]] = {}
        super().__init__(name, "")

    def close(self) -> None:
        self.unregister()

    def break_(self, step: str, error: type[apsw.Error], extended: int = 0) -> None:
        """Let every "write", "sync" or "truncate" fail from now on."""
        self.broken[step] = (error, extended)

    def repair(self) -> None:
        """All is well again; what was not written stays so."""
        self.broken.clear()

    def before(self, step: str, name: str) -> None:
        if step in self.broken:
            self.ops.append((f"{step} failed", name))
            kind, extended = self.broken[step]
            error = kind(f"the test broke it: {step} of {name}")
            error.extendedresult = extended
            raise error

    def after(self, op: Op) -> None:
        self.ops.append(op)

    def note(self, what: Any) -> None:
        """Something the test knows from here on, such as an acknowledgement."""
        self.ops.append(("note", what))

    def xOpen(self, name: Any, flags: list[int]) -> _File:  # noqa: N802
        return _File(self, name, flags)

    def xDelete(self, name: str, sync_folder: bool) -> None:  # noqa: N802
        super().xDelete(name, sync_folder)
        self.after(("delete", Path(name).name))


def images_at(ops: list[Op], point: int, seed: int) -> Iterator[Image]:
    """Possible contents of the disk if the power fails after `point` operations.

    First without anything that was not synced, then with all of it, then with a random
    part: whole writes, or some of their sectors. What was written before a sync that failed
    stays in doubt, whatever syncs come later: the system takes such pages for written.
    """
    files: dict[str, list[Op]] = {}
    sure: dict[str, set[int]] = {}
    pending: dict[str, set[int]] = {}
    for op in ops[:point]:
        kind, name = op[0], op[1]
        if kind == "sync":
            sure.setdefault(name, set()).update(pending.pop(name, ()))
        elif kind == "sync failed":
            pending.pop(name, None)
        elif kind == "delete":
            for table in (files, sure, pending):
                table.pop(name, None)
        elif kind in ("write", "truncate"):
            mine = files.setdefault(name, [])
            pending.setdefault(name, set()).add(len(mine))
            mine.append(op)
    choices: list[Callable[[Op], list[Op]]] = [lambda op: []]
    if any(len(sure.get(name, ())) < len(mine) for name, mine in files.items()):
        choices += [lambda op: [op], _Torn(random.Random(seed))]
    settled: dict[str, tuple[bytearray, int]] = {}
    """Content of each file after the writes before the first one in doubt, and their number."""
    for name, mine in files.items():
        content, count = bytearray(), 0
        while count < len(mine) and count in sure.get(name, ()):
            _apply(content, mine[count])
            count += 1
        settled[name] = content, count
    for choose in choices:
        image: Image = {}
        for name, mine in files.items():
            content, count = bytearray(settled[name][0]), settled[name][1]
            for number, op in enumerate(mine[count:], count):
                for part in [op] if number in sure.get(name, ()) else choose(op):
                    _apply(content, part)
            if content or sure.get(name):
                image[name] = bytes(content)
        yield image


class _Torn:
    """A choice for each write: nothing, everything, or some of its sectors."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def __call__(self, op: Op) -> list[Op]:
        kept = self._dice.choice(("nothing", "everything", "sectors"))
        if kept == "nothing" or op[0] == "truncate":
            return []
        if kept == "everything":
            return [op]
        _, name, offset, data = op
        starts = [at for at in range(0, len(data), SECTOR) if self._dice.random() < 0.5]
        return [("write", name, offset + at, data[at : at + SECTOR]) for at in starts]


def _apply(content: bytearray, op: Op) -> None:
    if op[0] == "truncate":
        del content[op[2] :]
        content.extend(bytes(op[2] - len(content)))
        return
    _, _, offset, data = op
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data
