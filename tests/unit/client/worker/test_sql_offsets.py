"""Offsets that a handler keeps in its own database, beside its rows."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import types

import pytest

from coordinator.client import BlockingPartition, Partition, Worker
from coordinator.client.errors import StaleMember
from coordinator.client.worker.sql_offsets import OFFSETS_TABLE, at_once, offset_in

KEY = "g", "t", 0


@pytest.fixture
def database(tmp_path):
    with sqlite3.connect(tmp_path / "results.db", isolation_level=None) as connection:
        connection.execute(OFFSETS_TABLE)
        connection.execute("CREATE TABLE result (number INTEGER, row INTEGER)")
        yield connection


def offset_of(cursor, token: int, offset: int = 0, *, moves: bool = False) -> int:
    return at_once(offset_in(cursor, KEY, token, offset, moves=moves))


def test_a_row_begins_where_the_first_owner_says_and_moves(database):
    cursor = database.cursor()
    assert offset_of(cursor, 5, 17) == 17
    assert offset_of(cursor, 5, 20, moves=True) == 20
    assert offset_of(cursor, 6, 99) == 20
    assert offset_of(cursor, 7, 25, moves=True) == 25
    assert database.execute("SELECT * FROM partition_offset").fetchall() == [(*KEY, 25, 7, 4)]


def test_a_later_owner_has_only_to_look_and_the_former_one_is_refused(database):
    cursor = database.cursor()
    offset_of(cursor, 5, 3, moves=True)
    offset_of(cursor, 6)
    for moves in (False, True):
        with pytest.raises(StaleMember, match="t-0 has been another worker's since token 5; roll"):
            offset_of(cursor, 5, 4, moves=moves)
    assert database.execute("SELECT next_offset, token FROM partition_offset").fetchone() == (3, 6)


def test_a_transaction_that_is_rolled_back_moves_nothing(database):
    cursor = database.cursor()
    offset_of(cursor, 5, 3)
    cursor.execute("BEGIN")
    offset_of(cursor, 5, 9, moves=True)
    cursor.execute("ROLLBACK")
    assert offset_of(cursor, 5) == 3


# --- Drivers ---


@pytest.mark.parametrize("style", ["qmark", "format", "pyformat", "numeric", "named"])
@pytest.mark.parametrize("rows", ["tuples", "dictionaries"])
def test_each_style_of_parameters(database, monkeypatch, style, rows):
    """Cursors of a driver of each style, over that of SQLite, which knows two of them."""
    module = types.ModuleType("a_driver")
    module.paramstyle = style
    monkeypatch.setitem(sys.modules, "a_driver", module)
    monkeypatch.setitem(sys.modules, "a_driver.cursors", types.ModuleType("a_driver.cursors"))

    class Cursor:
        __module__ = "a_driver.cursors"

        def __init__(self) -> None:
            self.inner = database.cursor()

        def execute(self, statement, values):
            if style in ("format", "pyformat"):
                assert "?" not in statement
                statement = statement.replace("%s", "?")
            assert isinstance(values, dict) == (style == "named")
            self.inner.execute(statement, values)

        @property
        def rowcount(self):
            return self.inner.rowcount

        def fetchone(self):
            row = self.inner.fetchone()
            if rows == "tuples" or row is None:
                return row
            return {told[0]: value for told, value in zip(self.inner.description, row, strict=True)}

    class Derived(Cursor):
        """As users derive one."""

    for token, kind in enumerate((Cursor, Derived), 1):
        assert offset_of(kind(), token, 7) == 7
        assert offset_of(kind(), token, 7, moves=True) == 7


def test_what_is_no_cursor_is_refused():
    with pytest.raises(TypeError, match=r"object is no cursor of a DB-API driver \(PEP 249\)"):
        offset_of(object(), 1)


# --- Partitions ---


class AwaitedCursor(sqlite3.Cursor):
    """As those of async drivers."""

    async def execute(self, statement, values=()):
        await asyncio.sleep(0)
        super().execute(statement, values)

    async def fetchone(self):
        return super().fetchone()


@pytest.mark.parametrize("kind", [sqlite3.Cursor, AwaitedCursor])
async def test_an_async_handler_takes_cursors_of_both_kinds(virtual_group, database, kind):
    group = virtual_group()
    worker = Worker("anywhere:1", "g", topics={"t": 2})

    @worker.handler
    async def handle(p: Partition) -> None:
        cursor = kind(database)
        begin = await p.position_in(cursor)
        await p.commit_in(cursor, begin + 10)
        await p.commit(begin + 10)
        await p.done()

    group.start(worker)
    await group.advance(10)
    assert group.committed() == {("t", 0): 10, ("t", 1): 10}
    rows = database.execute("SELECT group_id, topic, number, next_offset FROM partition_offset")
    assert sorted(rows) == [("g", "t", 0, 10), ("g", "t", 1, 10)]


async def test_a_thread_is_ended_by_a_later_owner_and_told_of_a_wrong_cursor(
    virtual_group, tmp_path, database
):
    group, messages = virtual_group(), []
    worker = Worker("anywhere:1", "g", topics={"t": 1}, max_attempts=1, after_max_attempts="stop")

    @worker.handler
    def handle(p: BlockingPartition) -> None:
        with sqlite3.connect(tmp_path / "results.db", isolation_level=None) as connection:
            begin = p.position_in(connection.cursor())
            if not messages:
                messages.append(begin)
                connection.execute("UPDATE partition_offset SET token = token + 1")
                try:
                    p.commit_in(connection.cursor(), begin + 1)
                except Exception:  # noqa: BLE001  # As users have it: it must not swallow the end.
                    messages.append("swallowed")
            with pytest.raises(TypeError, match="declare the handler `async def`"):
                p.commit_in(AwaitedCursor(connection), 1)
            messages.append("wrong")

    group.start(worker)
    await group.advance(20)
    assert messages == [0], "it is called again, and has not heard of a later owner"
    database.execute("UPDATE partition_offset SET token = 1")
    await group.until(lambda: "wrong" in messages)
    assert "swallowed" not in messages


async def test_a_classic_group_has_no_tokens_to_tell_owners_apart(virtual_group, database):
    group, messages = virtual_group(), []
    worker = Worker("anywhere:1", "g", topics={"t": 1}, protocol="classic")

    @worker.handler
    async def handle(p: Partition) -> None:
        with pytest.raises(RuntimeError, match="tokens, which partitions have in session groups"):
            await p.commit_in(database.cursor(), 1)
        messages.append(p.number)
        await p.done()

    group.start(worker)
    await group.until(lambda: messages == [0])
