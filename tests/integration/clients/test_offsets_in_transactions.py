"""Rows and offsets in one transaction of the workers' own database: killed and frozen workers.

The frozen ones wake up when their lease has ended and others have their partitions, and go on in
the middle of what they did.
"""

from __future__ import annotations

import contextlib
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter

import pytest

from coordinator.client import OFFSETS_TABLE
from coordinator.operator.admin import GroupAdmin
from tests.integration.waiting import wait_until
from tests.kit.serving import Process

PARTITIONS, WORKERS, STRIKES = 4, 3, 8
LEASE_S = 2.0
RESULT = "CREATE TABLE result (part INTEGER NOT NULL, n INTEGER NOT NULL)"
HEAD = """
import asyncio, os, sys, time
from coordinator.client import BlockingPartition, Partition, Worker

bootstrap, database = sys.argv[1:]
wishes = {"lease_ms": 2_000, "join_quiet_ms": 0}
worker = Worker(bootstrap, "g", topics={"t": 4}, client_id=str(os.getpid()), wishes=wishes)
"""
PROGRAMS = {
    "sqlite": """
import sqlite3

@worker.handler
def handle(p: BlockingPartition) -> None:
    connection = sqlite3.connect(database, timeout=60)
    cursor = connection.cursor()
    with connection:
        at = p.position_in(cursor)
    while True:
        time.sleep(0.03)
        with connection:
            rows = [(p.number, n) for n in range(at, at + 5)]
            cursor.executemany("INSERT INTO result VALUES (?, ?)", rows)
            at += 5
            p.commit_in(cursor, at)
        p.commit(at)

worker.run()
""",
    "psycopg": """
import psycopg

@worker.handler
def handle(p: BlockingPartition) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        with connection.transaction():
            at = p.position_in(connection.cursor())
        while True:
            time.sleep(0.03)
            with connection.transaction():
                cursor = connection.cursor()
                rows = [(p.number, n) for n in range(at, at + 5)]
                cursor.executemany("INSERT INTO result VALUES (%s, %s)", rows)
                at += 5
                p.commit_in(cursor, at)
            p.commit(at)

worker.run()
""",
    "psycopg-async": """
import psycopg

@worker.handler
async def handle(p: Partition) -> None:
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        async with connection.transaction():
            at = await p.position_in(connection.cursor())
        while True:
            await asyncio.sleep(0.03)
            async with connection.transaction():
                cursor = connection.cursor()
                rows = [(p.number, n) for n in range(at, at + 5)]
                await cursor.executemany("INSERT INTO result VALUES (%s, %s)", rows)
                at += 5
                await p.commit_in(cursor, at)
            await p.commit(at)

worker.run()
""",
}


@pytest.fixture(params=PROGRAMS)
def kind(request):
    return request.param


@pytest.fixture
def database(kind, request, tmp_path):
    """What the program connects to; its tables are made."""
    if kind == "sqlite":
        where = str(tmp_path / "results.db")
    else:
        where = request.getfixturevalue("postgres").url("primary", cluster="")
    with opened(where) as connection:
        for table in ("result", "partition_offset"):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
        connection.execute(OFFSETS_TABLE)
        connection.execute(RESULT)
    return where


@contextlib.contextmanager
def opened(where: str):
    import psycopg

    is_file = where.startswith("/")
    connection = sqlite3.connect(where) if is_file else psycopg.connect(where)
    with contextlib.closing(connection):
        yield connection
        connection.commit()


def read(where: str, statement: str) -> list[tuple]:
    with opened(where) as connection:
        return connection.execute(statement).fetchall()


def test_no_row_is_missing_and_none_is_there_twice(kind, database, tmp_path):
    chance = random.Random(kind)
    with Process() as server, contextlib.ExitStack() as stack:
        admin = stack.enter_context(GroupAdmin(server.address))
        log = stack.enter_context((tmp_path / "workers.log").open("w"))

        def start() -> subprocess.Popen:
            command = [sys.executable, "-c", HEAD + PROGRAMS[kind], server.address, database]
            worker = subprocess.Popen(command, stderr=log)
            stack.callback(worker.kill)
            return worker

        def ends() -> dict[int, int]:
            return dict(read(database, "SELECT number, next_offset FROM partition_offset"))

        def goes_on() -> None:
            """All workers are members, and all partitions get on beyond where they are now."""
            pids = {str(worker.pid) for worker in workers}
            wait_until(lambda: pids <= {m.client_id for m in admin.describe_group("g").members})
            before = ends()
            wait_until(lambda: len(ends()) == PARTITIONS)
            wait_until(lambda: all(end > before.get(n, 0) for n, end in ends().items()))

        workers = [start() for _ in range(WORKERS)]
        wait_until(ends)
        goes_on()
        for strike in range(STRIKES):
            victim = chance.choice(workers)
            time.sleep(chance.uniform(0, 0.5))
            if strike % 2:
                victim.kill()
                victim.wait()
                workers[workers.index(victim)] = start()
            else:
                victim.send_signal(signal.SIGSTOP)
                time.sleep(chance.uniform(0.5, 2) * LEASE_S)
                victim.send_signal(signal.SIGCONT)
            goes_on()
        for worker in workers:
            worker.terminate()
        assert [worker.wait() for worker in workers] == [0] * WORKERS
        committed = {p.partition: offset for p, offset in admin.offsets("g").items()}
        written = ends()
    rows = Counter(read(database, "SELECT part, n FROM result"))
    assert rows == Counter((part, n) for part, end in written.items() for n in range(end))
    assert all(committed[part] <= end for part, end in written.items())
    assert "Traceback" not in (tmp_path / "workers.log").read_text()
