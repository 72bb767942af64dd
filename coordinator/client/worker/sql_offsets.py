"""Offsets in a table of the user's own database, within the transaction that writes the results.

The table has a row for each partition: the next offset, and the token of the last owner that has
read or written it. An owner writes its token before it reads where to begin, so it waits for a
transaction of its predecessor, and every later one of those finds a higher token and is refused.

The count of changed rows decides. What a SELECT finds may be older, in a transaction of MySQL that
has read before; and as MySQL counts no row that gets the values which it has, writes are numbered.
"""

from __future__ import annotations

import sys
from collections.abc import Coroutine, Mapping, Sequence
from inspect import isawaitable
from typing import Any, TypeVar

from coordinator.client.errors import StaleMember

T = TypeVar("T")
OFFSETS_TABLE = """\
CREATE TABLE IF NOT EXISTS partition_offset (
    group_id VARCHAR(255) NOT NULL,
    topic VARCHAR(249) NOT NULL,
    number INTEGER NOT NULL,
    next_offset BIGINT NOT NULL,
    token BIGINT NOT NULL,
    writes BIGINT NOT NULL,
    PRIMARY KEY (group_id, topic, number)
)"""
"""The statement that makes the table."""
_CLAIM = "UPDATE partition_offset SET writes = writes + 1, token = {} "
_MOVE = "UPDATE partition_offset SET writes = writes + 1, token = {}, next_offset = {} "
_READ = "SELECT next_offset FROM partition_offset "
_ROW = "WHERE group_id = {} AND topic = {} AND number = {}"
_NOT_LATER = " AND token <= {}"
_INSERT = "INSERT INTO partition_offset VALUES ({}, {}, {}, {}, {}, 1)"
_MARKS = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric": ":{0}", "named": ":p{0}"}


async def offset_in(
    cursor: Any,  # Any: of the DB-API, or with its methods to be awaited; drivers share no type.
    key: tuple[str, str, int],
    token: int,
    offset: int,
    *,
    moves: bool,
) -> int:
    """The next offset of a partition, whose row is the token's now; errors of the driver pass.

    Args:
        key: group, topic, and number.
        offset: set if it `moves`, or if there is no row yet.
    Raises:
        StaleMember: a later owner has the row. RuntimeError: there is no token.
    """
    if not token:
        raise RuntimeError("offsets in a table are told apart by tokens, which partitions have in "
                           "session groups, once they are granted")  # fmt: skip
    change, *changed = (_MOVE, token, offset) if moves else (_CLAIM, token)
    await _execute(cursor, f"{change}{_ROW}{_NOT_LATER}", *changed, *key, token)
    is_mine = cursor.rowcount == 1
    if is_mine and moves:
        return offset
    await _execute(cursor, _READ + _ROW, *key)
    fetched = cursor.fetchone()
    row = await fetched if isawaitable(fetched) else fetched
    if row is None:
        await _execute(cursor, _INSERT, *key, offset, token)
        return offset
    if not is_mine:
        raise StaleMember(f"nothing was sent: {key[1]}-{key[2]} has been another worker's since "
                          f"token {token}; roll the transaction back")  # fmt: skip
    (stored,) = row.values() if isinstance(row, Mapping) else row
    return int(stored)


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that awaits nothing, since its cursor blocks; else TypeError."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise TypeError("the cursor is of an async driver: declare the handler `async def`")


async def _execute(cursor: Any, statement: str, *values: object) -> None:
    style = _paramstyle(type(cursor))
    marks = [_MARKS[style].format(number) for number, _ in enumerate(values, 1)]
    parameters: Sequence[object] | Mapping[str, object] = values
    if style == "named":
        parameters = {f"p{number}": value for number, value in enumerate(values, 1)}
    done = cursor.execute(statement.format(*marks), parameters)
    if isawaitable(done):
        await done


def _paramstyle(kind: type) -> str:
    """How a driver marks values: its module says so (PEP 249)."""
    for base in kind.__mro__:
        parts = base.__module__.split(".")
        for length in range(len(parts), 0, -1):
            style = getattr(sys.modules.get(".".join(parts[:length])), "paramstyle", None)
            if style in _MARKS:
                return str(style)
    raise TypeError(f"{kind.__qualname__} is no cursor of a DB-API driver (PEP 249)")
