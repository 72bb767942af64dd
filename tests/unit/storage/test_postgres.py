"""The store in PostgreSQL: which host is taken, what may be lost, and how that is noticed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import psycopg
import pytest

from coordinator.core.values.ids import ShardId
from coordinator.settings.parsers import shared_store, without_password
from coordinator.storage import postgres as postgres_module
from coordinator.storage import postgres_connection
from coordinator.storage.access import StoreAccess
from coordinator.storage.coordination import NOBODY, NodeInfo, ShardState
from coordinator.storage.log import (
    Ambiguous,
    CannotOpen,
    Entry,
    Fenced,
    LogUnavailable,
)
from coordinator.storage.postgres import PostgresLog
from coordinator.storage.postgres_connection import Database, Server
from coordinator.storage.postgres_coordination import PostgresCoordination
from coordinator.storage.postgres_lineage import PostgresStore
from coordinator.storage.postgres_schema import ddl
from tests.campaigns.faults.stores import Postgres, missing_postgres
from tests.integration.waiting import until, wait_until
from tests.kit.patience import HANG_S
from tests.kit.proxy import Proxy
from tests.kit.serving import free_port
from tests.unit.storage.conftest import SHARDS
from tests.unit.storage.meetings import SESSION_S, postgres_store

S0 = ShardId(0)
CLUSTER = "test"


def entry(sequence: int, epoch: int = 1, size: int = 10) -> Entry:
    return Entry(sequence, epoch, sequence - 1, (b"%d" % sequence * size,))


@contextlib.asynccontextmanager
async def opened(url: str, shards: int | None = SHARDS, cluster: str = CLUSTER, troubles=None):
    store = postgres_store(url, cluster)
    if troubles is not None:
        store.report = lambda what, words: troubles.append((what, words))
    log = await PostgresLog.open(store, shards=shards)
    try:
        yield log
    finally:
        await log.close()


@pytest.fixture
def own(request):
    """A server of the test's own, which may be killed."""
    if reason := missing_postgres():
        pytest.skip(reason)
    with Postgres(**getattr(request, "param", {})) as server:
        yield server


def by_hand(url: str, statement: str, *values: object) -> list:
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        cursor = connection.execute(statement, values)
        return cursor.fetchall() if cursor.description else []


# --- The URL ------------------------------------------------------------------------------------


def test_the_cluster_names_the_schema_and_the_rest_is_libpqs():
    found = shared_store("postgresql://u@h1:1,h2:2/db?cluster=jobs&sslmode=require")
    assert (found.kind, found.endpoints, found.name) == ("postgresql", ("h1:1", "h2:2"), "jobs")
    assert found.url == "postgresql://u@h1:1,h2:2/db?sslmode=require"
    assert shared_store("postgres://h/db").name == "coordinator"


@pytest.mark.parametrize("name", ["", "1st", "a b", "x" * 64, "a" + "é" * 32, "a;drop"])
def test_a_cluster_that_is_no_name_is_refused(name):
    with pytest.raises(ValueError, match="cluster names a schema"):
        shared_store(f"postgresql://h/db?cluster={name}")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("u:geheim@h:1/db?password=geheim&cluster=jobs", "u@h:1/db?cluster=jobs"),
        ("u:geheim@h/db?sslpassword=geheim&p%61ssword=geheim", "u@h/db"),
        ("h:1,[::1]:2/db?options=a%20b&host=/run/x", "h:1,[::1]:2/db?options=a%20b&host=/run/x"),
        ("/db?service=s", "/db?service=s"),
        # Passwords with characters that are to be encoded: libpq refuses most of these.
        ("u:ge%zzheim@h/db", "u@h/db"),
        ("u:ge/heim@h/db", "u@h/db"),
        ("u:ge@heim@h/db", "u@h/db"),
        ("u:ge?heim@h/db?x=y", "u@h/db?x=y"),
        ("u:ge/he?im@h/db", "u@h/db"),
        ("u:ge=h/eim@h/db", "u@h/db"),
        ("u:ge/h?e=im@h/db", "u@h/db"),
        ("u:ge:heim#@h/db", "u@h/db"),
        ("u:123/heim@h/db", "u@h/db"),
    ],
)
def test_passwords_are_not_shown(url, shown):
    assert without_password(f"postgresql://{url}") == f"postgresql://{shown}"
    try:
        target = Database.of(
            f"postgresql://{url.replace('&cluster=jobs', '')}", "c", StoreAccess(())
        )
    except CannotOpen as refused:
        target = refused
    for part in ("geheim", "heim", "ge%", "he?im", "eim"):
        assert part not in str(target).replace("does not understand", "")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///db?service=s",
        "postgresql://u@/db?host=/run/postgresql",
        "postgresql://u:a%2Fb@%2Frun%2Fpostgresql/db",
        "postgresql://u@h/db?options=-c%20work_mem%3D4MB",
        "postgres://[::1]:1,h2:2/db",
    ],
)
def test_what_is_libpqs_is_handed_on_as_it_stands(url):
    divider = "&" if "?" in url else "?"
    assert shared_store(url).url == url
    assert shared_store(f"{url}{divider}cluster=jobs").url == url
    assert shared_store(f"{url}{divider}cluster=jobs").name == "jobs"


def test_a_service_names_the_hosts_unless_the_url_does(tmp_path, monkeypatch):
    file = tmp_path / "services"
    file.write_text("[s]\nhost=db-1,db-2\nport=1,2\ndbname=app\n")
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    named = ({"host": "db-1", "port": "1"}, {"host": "db-2", "port": "2"})
    assert Database.of("postgresql://?service=s", "c", StoreAccess(())).hosts == named
    assert "PGSERVICE" not in os.environ
    one = Database.of("postgresql://h:9/?service=s", "c", StoreAccess(()))
    assert one.hosts == ({"host": "h", "port": "9"},)
    monkeypatch.setenv("PGHOST", "db-3,db-4")
    assert len(Database.of("postgresql:///db", "c", StoreAccess(())).hosts) == 2


@pytest.mark.parametrize(
    "url", ["postgresql:///db?hostaddr=10.0.0.1", "postgresql://localhost/?hostaddr=10.0.0.1"]
)
def test_an_address_beyond_the_loopback_needs_certificates_whatever_the_name(url):
    assert Database.of(url, "c", StoreAccess(())).parameters["sslmode"] == "verify-full"
    inside = url.replace("10.0.0.1", "127.0.0.1")
    assert "sslmode" not in Database.of(inside, "c", StoreAccess(())).parameters


def test_hosts_and_ports_in_different_numbers_are_refused():
    with pytest.raises(CannotOpen, match="different numbers"):
        Database.of("postgresql://h1:1,h2:2/?hostaddr=127.0.0.1", "c", StoreAccess(()))


@pytest.mark.parametrize(
    ("hosts", "mode"),
    [("127.0.0.1", None), ("localhost,::1", None), ("db.example", "verify-full")],
)
def test_certificates_are_checked_beyond_the_loopback(hosts, mode):
    names = ",".join(f"[{host}]" if ":" in host else host for host in hosts.split(","))
    target = Database.of(f"postgresql://{names}/db", "jobs", StoreAccess(()))
    assert target.parameters.get("sslmode") == mode
    plain = Database.of(f"postgresql://{names}/db?sslmode=disable", "jobs", StoreAccess(()))
    assert plain.parameters["sslmode"] == "disable"


# --- Opening ------------------------------------------------------------------------------------


@pytest.mark.integration
async def test_a_store_keeps_its_number_of_shards_and_its_format(postgres):
    url, cluster = postgres.url("primary", cluster=""), "kept"
    with pytest.raises(CannotOpen, match="no store of this name"):
        async with opened(url, None, cluster):
            pass
    async with opened(url, 4, cluster):
        pass
    async with opened(url, None, cluster) as log:
        assert log.shards == 4
    with pytest.raises(CannotOpen, match="made for 4 shards"):
        async with opened(url, 5, cluster):
            pass
    by_hand(url, "UPDATE kept.cluster SET format = 2")
    with pytest.raises(CannotOpen, match="a newer version has written it"):
        async with opened(url, 4, cluster):
            pass


@pytest.mark.integration
async def test_clusters_share_a_database(postgres):
    url = postgres.url("primary", cluster="")
    async with opened(url, cluster="one") as one, opened(url, cluster="two") as two:
        first, second = await one.fence(S0), await two.fence(S0)
        await one.append(first, entry(1))
        assert (await two.load(second)).entries == []
        assert [host.sequence for host in (await one.load(first)).entries] == [1]


@pytest.mark.integration
async def test_a_role_with_the_printed_grants_and_nothing_else_can_do_all(postgres):
    url = postgres.url("primary", cluster="")
    by_hand(url, "CREATE ROLE worker LOGIN")
    by_hand(url, "REVOKE CREATE, TEMPORARY ON DATABASE postgres FROM PUBLIC")
    for _ in range(2):
        by_hand(url, ddl("granted", SHARDS, "worker"))
    async with opened(url.replace("postgres@", "worker@"), cluster="granted") as log:
        fence = await log.fence(S0)
        await log.append(fence, entry(1))
        coordination = PostgresCoordination(log._store, timeout_s=SESSION_S)
        session = await coordination.join(NodeInfo(1, "h", 1, "first"))
        assert await coordination.campaign(session) == 1
        await coordination.close()


@pytest.mark.integration
async def test_a_server_that_is_not_there_is_named_without_a_password():
    url = f"postgresql://u:secret@127.0.0.1:{free_port()}/db"
    with pytest.raises(CannotOpen, match="cluster test") as refused:
        async with opened(url):
            pass
    assert "secret" not in str(refused.value)


@pytest.mark.integration
async def test_a_database_that_is_not_there_is_named(postgres):
    url = postgres.url("primary", cluster="").removesuffix("postgres") + "nowhere"
    with pytest.raises(CannotOpen, match='database "nowhere" does not exist'):
        async with opened(url):
            pass


@pytest.mark.integration
@pytest.mark.parametrize("own", [{"fsync": "off"}], indirect=True)
async def test_a_server_that_does_not_sync_is_refused(own):
    with pytest.raises(CannotOpen, match="fsync = off"):
        async with opened(own.url("primary", cluster="")):
            pass


@pytest.mark.integration
@pytest.mark.parametrize("own", [{"synchronous_commit": "off"}], indirect=True)
async def test_commits_wait_for_the_disk_whatever_the_server_says(own):
    connection = await asyncio.to_thread(
        postgres_store(own.url("primary", cluster=""), CLUSTER).server.connect
    )
    with contextlib.closing(connection):
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)


# --- Poolers ------------------------------------------------------------------------------------


def _answers(url: str) -> bool:
    with contextlib.suppress(psycopg.Error), psycopg.connect(url, connect_timeout=2):
        return True
    return False


@contextlib.contextmanager
def pooler(server: Postgres, mode: str):
    """PgBouncer in front of a server; its URL."""
    program = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    if not Path(program).exists():
        pytest.skip("PgBouncer is not installed (Debian: pgbouncer)")
    port = free_port()
    configuration = server.folder / f"{mode}.ini"
    configuration.write_text(
        f"""[databases]
postgres = host=127.0.0.1 port={server.ports["primary"]} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
"""
    )
    user = {"user": "postgres", "group": "postgres"} if os.getuid() == 0 else {}
    process = subprocess.Popen(
        [program, configuration], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **user
    )
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    try:
        wait_until(lambda: _answers(url))
        yield url
    finally:
        process.kill()
        process.wait()


@pytest.mark.integration
async def test_a_pooler_in_transaction_mode_is_refused(postgres):
    with pooler(postgres, "transaction") as url:
        with pytest.raises(CannotOpen, match="pooler in transaction mode"):
            async with opened(url, cluster="pooled"):
                pass


@pytest.mark.integration
async def test_a_pooler_in_session_mode_is_not_in_the_way(postgres):
    with pooler(postgres, "session") as url:
        async with opened(url, cluster="pooled_well") as log:
            await log.append(await log.fence(S0), entry(1))


# --- Answers that do not come -------------------------------------------------------------------


@pytest.mark.integration
async def test_a_lost_answer_is_ambiguous_and_the_same_entry_can_be_written_again(
    postgres, monkeypatch
):
    monkeypatch.setattr(postgres_module, "CALL_S", 1.0)
    async with Proxy(f"127.0.0.1:{postgres.ports['primary']}") as proxy:
        url = f"postgresql://postgres@{proxy.address}/postgres"
        async with opened(url, cluster="lossy") as log:
            fence = await log.fence(S0)
            await log.append(fence, entry(1))
            proxy.answers_pass = False
            with pytest.raises(Ambiguous):
                await log.append(fence, entry(2))
            proxy.mend()
            async with asyncio.timeout(HANG_S):
                while True:
                    try:
                        await log.append(fence, entry(2))
                        break
                    except (Ambiguous, LogUnavailable):
                        await asyncio.sleep(0.1)
            assert [host.sequence for host in (await log.load(fence)).entries] == [1, 2]
            with pytest.raises(Fenced):
                await log.append(fence, Entry(2, 1, 1, (b"another",)))


@pytest.mark.integration
async def test_a_frozen_server_keeps_nobody_waiting_for_ever(own, monkeypatch):
    monkeypatch.setattr(postgres_module, "CALL_S", 0.5)
    url = own.url("primary", cluster="")
    async with opened(url) as log:
        fence = await log.fence(S0)
        pid = log._connection.info.backend_pid
        os.kill(pid, signal.SIGSTOP)
        try:
            async with asyncio.timeout(HANG_S):
                with pytest.raises(Ambiguous):
                    await log.append(fence, entry(1))
        finally:
            os.kill(pid, signal.SIGCONT)


def await_a_standby(url: str) -> None:
    """Have commits wait for a synchronous standby that is not there."""
    by_hand(url, "ALTER SYSTEM SET synchronous_standby_names = 'absent'")
    by_hand(url, "SELECT pg_reload_conf()")


@pytest.mark.integration
async def test_a_commit_whose_wait_for_a_standby_was_cancelled_is_ambiguous(own):
    """PostgreSQL reports success, with a warning."""
    url = own.url("primary", cluster="")
    async with opened(url) as log:
        fence = await log.fence(S0)
        await_a_standby(url)
        appending = asyncio.ensure_future(log.append(fence, entry(1)))
        pid = log._connection.info.backend_pid
        waits = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event = 'SyncRep'"
        await until(lambda: by_hand(url, waits, pid), HANG_S)
        by_hand(url, "SELECT pg_cancel_backend(%s)", pid)
        with pytest.raises(Ambiguous, match="synchronous replication"):
            await appending


@pytest.mark.integration
async def test_a_pooler_whose_server_dies_leaves_the_entry_in_doubt(own):
    """It answers with an error, although the entry is stored."""
    url = own.url("primary", cluster="")
    with pooler(own, "session") as pooled:
        async with opened(pooled) as log:
            fence = await log.fence(S0)
            await_a_standby(url)
            appending = asyncio.ensure_future(log.append(fence, entry(1)))
            waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            await until(lambda: by_hand(url, waiting), HANG_S)
            os.kill(by_hand(url, waiting)[0][0], signal.SIGKILL)
            with pytest.raises(Ambiguous):
                await appending

            def is_stored() -> bool:
                with contextlib.suppress(psycopg.Error):  # The server starts anew.
                    return by_hand(url, f"SELECT sequence FROM {CLUSTER}.entry") == [(1,)]
                return False

            await until(is_stored, HANG_S)


@pytest.mark.integration
async def test_a_locked_row_of_one_shard_holds_up_no_other(postgres):
    url, cluster = postgres.url("primary", cluster=""), "locked"
    async with opened(url, cluster=cluster) as log:
        fences = [await log.fence(ShardId(number)) for number in range(3)]
        with psycopg.connect(url) as other:
            other.execute(f"SELECT 1 FROM {cluster}.fence WHERE shard = 1 FOR UPDATE")
            for sequence in (1, 2):
                results = await asyncio.gather(
                    log.append(fences[0], entry(sequence)),
                    log.append(fences[1], entry(1)),
                    log.append(fences[2], entry(sequence)),
                    return_exceptions=True,
                )
                assert [type(one) for one in results] == [type(None), LogUnavailable, type(None)]
                assert "another session has locked shard 1" in str(results[1])
                assert not results[1].is_lasting
        await log.append(fences[1], entry(1))
        assert [(await log.load(fence)).sequence for fence in fences] == [2, 1, 2]
        with psycopg.connect(url) as other:
            other.execute(f"SELECT 1 FROM {cluster}.fence WHERE shard = 1 FOR UPDATE")
            with pytest.raises(Ambiguous, match="locked"):  # Stored, and not confirmed.
                await log.append(fences[1], entry(1))
        await log.append(fences[1], entry(1))


@pytest.mark.integration
async def test_a_refusal_that_cannot_be_found_out_is_that_of_its_entry(postgres, monkeypatch):
    url = postgres.url("primary", cluster="")
    async with opened(url, cluster="unfound") as log:
        fences = [await log.fence(ShardId(number)) for number in range(2)]

        def dies(*_):
            raise psycopg.OperationalError("the connection is lost")

        monkeypatch.setattr(log, "_refusal_of", dies)
        results = await asyncio.gather(
            log.append(fences[0], entry(1)),
            log.append(fences[1], entry(7)),
            return_exceptions=True,
        )
        assert [type(one) for one in results] == [type(None), Ambiguous]
        assert (await log.load(fences[0])).sequence == 1


@pytest.mark.integration
async def test_a_node_that_is_frozen_inside_a_change_lets_the_others_go_on(postgres):
    url, cluster = postgres.url("primary", cluster=""), "frozen"
    async with opened(url, cluster=cluster):
        pass
    store = postgres_store(url, cluster)
    other = PostgresCoordination(store, timeout_s=SESSION_S)
    frozen = await asyncio.to_thread(postgres_store(url, cluster).connect)
    with contextlib.closing(frozen):
        frozen.execute("BEGIN")
        frozen.execute("SELECT * FROM cluster FOR UPDATE")
        async with asyncio.timeout(HANG_S):
            while True:  # Until the server has ended the transaction that does nothing.
                with contextlib.suppress(LogUnavailable, Ambiguous):
                    session = await other.join(NodeInfo(1, "h", 1, "first"))
                    break
        assert await other.campaign(session) == 1
        with pytest.raises(psycopg.Error):
            frozen.execute("SELECT 1")
    await other.close()


# --- Standbys and lineage -----------------------------------------------------------------------


async def lose_the_newest(server: Postgres, log: PostgresLog, fence, sequence: int) -> None:
    """Have a standby that was down take over, without an entry that was acknowledged."""
    server.kill("standby")
    await log.append(fence, entry(sequence, fence.fence_epoch))
    server.kill("primary")
    server.start("standby")
    server.promote("standby")


@pytest.mark.integration
async def test_the_first_host_of_a_service_may_be_a_standby(own, tmp_path, monkeypatch):
    own.add_standby("standby")
    async with opened(own.url("primary", cluster="")):
        pass
    _until_caught_up(own)
    file = tmp_path / "services"
    ports = f"{own.ports['standby']},{own.ports['primary']}"
    file.write_text(f"[s]\nhost=127.0.0.1,127.0.0.1\nport={ports}\nuser=postgres\n")
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    async with opened("postgresql:///postgres?service=s") as log:
        await log.append(await log.fence(S0), entry(1))


@contextlib.contextmanager
def frozen_host():
    """HOST:PORT of a socket that never answers, as that of a stopped server."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.integration
async def test_a_frozen_host_keeps_nobody_waiting_once_a_lineage_is_known(postgres, monkeypatch):
    """All hosts are asked at once, and the others have a short grace after the first that suits."""
    url = postgres.url("primary", cluster="")
    async with opened(url) as log:
        with frozen_host() as frozen:
            store = postgres_store(url.replace("@", f"@{frozen},"), CLUSTER)
            monkeypatch.setattr(postgres_connection, "CONNECT_S", 10 * HANG_S)
            store.lineage = log._store.lineage
            connection = await asyncio.to_thread(store.connect)
            assert str(connection.info.port) == url.rpartition(":")[2].partition("/")[0]
            connection.close()
            store.server.watchdog.close()


@pytest.mark.integration
async def test_all_hosts_are_waited_for_while_no_lineage_is_known(postgres, monkeypatch):
    """The one that is slow may be the later primary."""
    url = postgres.url("primary", cluster="")
    async with opened(url):
        asked: list[int] = []
        with frozen_host() as frozen:
            store = postgres_store(url.replace("@", f"@{frozen},"), CLUSTER)
            candidate = store.server._candidate

            def counted(host):
                try:
                    return candidate(host)
                finally:
                    asked.append(int(host["port"]))

            monkeypatch.setattr(type(store.server), "_candidate", lambda _, host: counted(host))
            (await asyncio.to_thread(store.connect)).close()
            assert len(asked) == 2
            store.server.watchdog.close()


@pytest.mark.integration
async def test_a_later_primary_that_is_slow_is_waited_for_by_who_knows_its_lineage(
    own, monkeypatch
):
    """An old primary that answers first suits nobody, so it does not begin the grace."""
    own.add_standby("standby")
    async with opened(own.url("primary", cluster="")):
        pass
    _until_caught_up(own)
    own.promote("standby")
    _begin_a_lineage(own.url("standby", cluster=""))
    store = postgres_store(own.url("primary", "standby", cluster=""), CLUSTER)
    (await asyncio.to_thread(store.connect)).close()
    opening = Server._open

    def slow(server, host):
        if host["port"] == str(own.ports["standby"]):
            time.sleep(4 * postgres_connection.GRACE_S)
        return opening(server, host)

    monkeypatch.setattr(Server, "_open", slow)
    connection = await asyncio.to_thread(store.connect)
    assert connection.info.port == own.ports["standby"]
    connection.close()
    store.server.watchdog.close()


@pytest.mark.integration
async def test_a_server_without_a_free_connection_still_gives_up_shards_and_their_entries(postgres):
    """Take-overs and loads go over the connections that a node holds."""
    url = postgres.url("primary", cluster="")
    by_hand(url, "CREATE ROLE poor LOGIN")
    by_hand(url, ddl("crowded", SHARDS, "poor"))
    async with opened(url.replace("postgres@", "poor@"), cluster="crowded") as log:
        fence = await log.fence(S0)
        await log.append(fence, entry(1))
        by_hand(url, "ALTER ROLE poor CONNECTION LIMIT 1")
        with pytest.raises(psycopg.OperationalError, match="too many connections"):
            by_hand(url.replace("postgres@", "poor@"), "SELECT 1")
        fence = await log.fence(S0)
        assert [host.sequence for host in (await log.load(fence)).entries] == [1]
        await log.append(fence, entry(2, fence.fence_epoch))
        assert (await log.read(S0)).sequence == 2


@pytest.mark.integration
async def test_two_names_of_one_server_are_no_two_primaries(postgres):
    url = postgres.url("primary", cluster="")
    async with opened(url):
        pass
    port = postgres.ports["primary"]
    store = postgres_store(f"postgresql://postgres@127.0.0.1:{port},localhost:{port}/", CLUSTER)
    await asyncio.to_thread(store.survey)
    assert store.server.rivals == ()
    store.server.watchdog.close()


@pytest.mark.integration
async def test_what_a_role_has_set_for_its_sessions_does_not_count(postgres):
    url = postgres.url("primary", cluster="")
    by_hand(url, "CREATE ROLE odd LOGIN SUPERUSER")
    by_hand(url, "ALTER ROLE odd SET default_transaction_isolation = 'serializable'")
    by_hand(url, "ALTER ROLE odd SET idle_session_timeout = '10s'")
    by_hand(url, "ALTER ROLE odd SET statement_timeout = '10s'")
    async with opened(url.replace("postgres@", "odd@"), cluster="odd") as log:
        await log.append(await log.fence(S0), entry(1))
        settings = ("transaction_isolation", "idle_session_timeout", "statement_timeout")
        shown = await log._writer.submit(
            lambda held: [held.execute(f"SHOW {name}").fetchone()[0] for name in settings]
        )
        assert shown == ["read committed", "0", "0"]


@pytest.mark.integration
async def test_a_renewal_that_another_server_process_answers_finds_the_pooler(
    postgres, monkeypatch
):
    async with opened(postgres.url("primary", cluster=""), cluster="pooled") as log:
        coordination = PostgresCoordination(log._store, timeout_s=HANG_S)
        session = await coordination.join(NodeInfo(1, "h", 1, "first"))
        assert await coordination._renew(session)
        coordination._pid += 1
        with pytest.raises(LogUnavailable, match="use session mode"):
            await coordination._renew(session)
        assert await coordination._renew(session)
        await coordination.close()


@pytest.mark.integration
async def test_a_standby_is_never_taken(own):
    own.add_standby("standby")
    url = own.url("standby", "primary", cluster="")
    async with opened(url) as log:
        assert log._store.server.host == f"127.0.0.1:{own.ports['primary']}"
    with pytest.raises(CannotOpen, match="every host is a standby"):
        async with opened(own.url("standby", cluster="")):
            pass


@pytest.mark.integration
async def test_a_promoted_standby_that_lost_commits_begins_a_lineage(own):
    troubles = []
    async with opened(own.url("primary", cluster="")) as log:
        fence = await log.fence(S0, leader_epoch=1)
        await log.append(fence, entry(1, fence.fence_epoch))
        nodes = PostgresCoordination(log._store, timeout_s=SESSION_S)
        session = await nodes.join(NodeInfo(1, "h", 1, "first"))
        epoch = await nodes.campaign(session)
        await nodes.write(epoch, ShardState(S0, 1, 1, (1,), (1,)))
        await nodes.close()
        own.add_standby("standby")
        await asyncio.to_thread(_until_caught_up, own)
        await lose_the_newest(own, log, fence, 2)
    async with opened(own.url(cluster=""), troubles=troubles) as log:
        [(what, words)] = troubles
        assert what == "store_went_back"
        assert "timeline 1" in words
        assert "timeline 2" in words
        with pytest.raises(Fenced, match="issued a second time"):
            await log.append(fence, entry(2, fence.fence_epoch))
        nodes = PostgresCoordination(log._store, timeout_s=SESSION_S)
        view = await nodes.read()
        assert (view.nodes, view.controller, view.shards[S0].leader) == ({}, NOBODY, NOBODY)
        raised = log._store.lineage.raised
        assert raised >= 1 << 16
        assert view.controller_epoch == epoch + raised
        assert view.shards[S0].leader_epoch == 1 + raised
        again = await log.fence(S0, leader_epoch=2 + raised)
        assert again.fence_epoch > fence.fence_epoch
        loaded = await log.load(again)
        assert ([host.sequence for host in loaded.entries], loaded.raised) == ([1], raised)
        await log.append(again, entry(2, again.fence_epoch))
        assert (await log.load(again)).raised == 0
        unknown = await log.fence(ShardId(1), leader_epoch=2 + raised)
        assert (await log.load(unknown)).raised == raised, "the store may have lost the shard"
        await nodes.close()
    async with opened(own.url(cluster=""), troubles=troubles):
        assert len(troubles) == 1  # The next process finds the lineage that was begun.


def _until_caught_up(server: Postgres) -> None:
    """Wait until the standby has all that the primary has written."""
    url = server.url("primary", cluster="")
    behind = (
        "SELECT count(*) FROM pg_stat_replication WHERE flush_lsn >= pg_current_wal_flush_lsn()"
    )
    wait_until(lambda: by_hand(url, behind) != [(0,)])


@pytest.mark.integration
async def test_of_two_primaries_the_later_lineage_is_taken_and_the_other_is_told(own):
    async with opened(own.url("primary", cluster="")) as log:
        fence = await log.fence(S0)
        await log.append(fence, entry(1))
        own.add_standby("standby")
        await asyncio.to_thread(_until_caught_up, own)
        own.promote("standby")  # Nobody has told the old primary.
        await asyncio.to_thread(_begin_a_lineage, own.url("standby", cluster=""))
        troubles = []
        store = PostgresStore(
            Server(Database.of(own.url(cluster=""), CLUSTER, StoreAccess(()), SESSION_S)),
            report=lambda what, words: troubles.append(what),
        )
        connection = await asyncio.to_thread(store.connect)
        connection.close()
        assert store.server.host == f"127.0.0.1:{own.ports['standby']}"
        await asyncio.to_thread(store.survey)
        assert "two_primaries" in troubles
        own.kill("standby")
        for ask in (store.connect, store.survey):
            with pytest.raises(LogUnavailable, match="lineage 1, and lineage 2 has begun"):
                await asyncio.to_thread(ask)
        assert store.moves == 0
        store.server.watchdog.close()


def _begin_a_lineage(url: str) -> None:
    store = postgres_store(url, CLUSTER)
    store.connect().close()
    store.server.watchdog.close()


@pytest.mark.integration
async def test_two_standbys_of_one_moment_issue_no_number_twice(own):
    """Each was promoted alone: system, timeline and all that is stored are the same."""
    async with opened(own.url("primary", cluster="")) as log:
        fence = await log.fence(S0, leader_epoch=1)
        await log.append(fence, entry(1, fence.fence_epoch))
        own.add_standby("first")
        own.add_standby("second")
        await asyncio.to_thread(_until_caught_up, own)
    own.kill("primary")
    found = []
    for name in ("first", "second"):
        own.promote(name)
        async with opened(own.url(name, cluster="")) as log:
            found.append((await log.fence(S0, 2 + log._store.lineage.raised), log._store.lineage))
        own.kill(name)
    (one, first), (two, second) = found
    assert dataclasses.replace(first.position, flushed=0) == dataclasses.replace(
        second.position, flushed=0
    )
    assert first.id != second.id
    assert one.token != two.token
    assert one.fence_epoch != two.fence_epoch


# --- Copies that are put back under running nodes -------------------------------------------------


def keep(url: str, cluster: str) -> None:
    """Keep a copy of the log and of what nodes agree on."""
    for table in ("fence", "entry", "cluster"):
        by_hand(url, f"CREATE TABLE {cluster}.kept_{table} AS TABLE {cluster}.{table}")


def put_back(url: str, cluster: str, *tables: str) -> None:
    """Put the copy back, in the history of the server as it is."""
    for table in tables:
        by_hand(url, f"DELETE FROM {cluster}.{table}")
        by_hand(url, f"INSERT INTO {cluster}.{table} SELECT * FROM {cluster}.kept_{table}")


@pytest.mark.integration
@pytest.mark.parametrize("is_taken_again", [False, True], ids=["an entry", "a take-over"])
async def test_an_owner_that_finds_less_than_it_has_had_begins_one_lineage(
    postgres, is_taken_again
):
    url, troubles = postgres.url("primary", cluster=""), []
    cluster = f"put_back_{is_taken_again}".lower()
    async with opened(url, cluster=cluster, troubles=troubles) as log:
        shards = [ShardId(number) for number in range(3)]
        fences = [await log.fence(shard) for shard in shards]
        for fence in fences:
            await log.append(fence, entry(1, fence.fence_epoch))
        keep(url, cluster)
        if is_taken_again:
            fences = [await log.fence(shard) for shard in shards]
        for fence in fences:
            await log.append(fence, entry(2, fence.fence_epoch))
        put_back(url, cluster, "fence", "entry")
        results = await asyncio.gather(
            *(log.append(fence, entry(3, fence.fence_epoch)) for fence in fences),
            return_exceptions=True,
        )
        assert [type(one) for one in results] == [Fenced] * 3
        ((what, words),) = troubles
        assert what == "store_went_back"
        assert "put back" in words
        lineage = log._store.lineage
        assert lineage.number == 2
        again = await log.fence(S0, leader_epoch=1 + lineage.raised)
        loaded = await log.load(again)
        assert ([host.sequence for host in loaded.entries], loaded.raised) == ([1], lineage.raised)
        with pytest.raises(Fenced):  # One of the lineage before, which proves nothing now.
            await log.append(fences[1], entry(3, fences[1].fence_epoch))
        assert log._store.lineage.number == 2


@pytest.mark.integration
async def test_an_owner_that_connects_again_finds_less_than_it_has_had(postgres):
    """Before anybody writes: its session may be over, and the shard is given to another node."""
    url, troubles = postgres.url("primary", cluster=""), []
    async with opened(url, cluster="again", troubles=troubles) as log:
        fence = await log.fence(S0)
        keep(url, "again")
        await log.append(fence, entry(1, fence.fence_epoch))
        put_back(url, "again", "fence", "entry")
        (await asyncio.to_thread(log._store.connect)).close()
        assert [what for what, _ in troubles] == ["store_went_back"]
        assert log._store.lineage.number == 2


@pytest.mark.integration
@pytest.mark.parametrize("is_same_node", [True, False], ids=["itself", "another"])
async def test_a_take_over_of_a_shard_that_was_put_back_is_noticed(postgres, is_same_node):
    url, troubles = postgres.url("primary", cluster=""), []
    cluster = f"taken_{is_same_node}".lower()
    async with opened(url, cluster=cluster, troubles=troubles) as log:
        async with opened(url, cluster=cluster) as other:
            await log.fence(S0)
            keep(url, cluster)
            lost = await log.fence(S0)
            put_back(url, cluster, "fence", "entry")
            again = await (log if is_same_node else other).fence(S0)
            if not is_same_node:  # It could not know.
                assert (again.fence_epoch, troubles) == (lost.fence_epoch, [])
                (await asyncio.to_thread(log._store.connect)).close()
            assert [what for what, _ in troubles] == ["store_went_back"]
            assert log._store.lineage.number == 2


@pytest.mark.integration
async def test_every_node_tells_that_the_store_went_back(postgres):
    """The first that notices begins the lineage; the others find it."""
    url, told = postgres.url("primary", cluster=""), ([], [])
    async with opened(url, cluster="told", troubles=told[0]) as first:
        async with opened(url, cluster="told", troubles=told[1]) as second:
            by_hand(url, "UPDATE told.cluster SET timeline = timeline + 1")
            for log in (first, second, second, first):
                (await asyncio.to_thread(log._store.connect)).close()
            view = await PostgresCoordination(second._store).read()
    for troubles in told:
        ((what, words),) = troubles
        assert what == "store_went_back"
        assert re.search(r" at LSN \d+/\w+, which had come to LSN \d+/\w+, ", words)
        assert "lineage 2 begins" in words
    assert view.lineage_number == 2


@pytest.mark.integration
async def test_an_owner_that_was_replaced_begins_no_lineage(postgres):
    url, troubles = postgres.url("primary", cluster=""), []
    async with opened(url, cluster="replaced", troubles=troubles) as log:
        async with opened(url, cluster="replaced", troubles=troubles) as other:
            first = await log.fence(S0)
            await log.append(first, entry(1, first.fence_epoch))
            second = await other.fence(S0)
            await other.append(second, entry(2, second.fence_epoch))
            for sequence in (2, 3, 4):
                with pytest.raises(Fenced):
                    await log.append(first, entry(sequence, first.fence_epoch))
            assert troubles == []
            assert log._store.lineage.number == 1


@pytest.mark.integration
async def test_a_node_that_finds_an_older_version_begins_a_lineage(postgres):
    url, troubles = postgres.url("primary", cluster=""), []
    async with opened(url, cluster="older", troubles=troubles) as log:
        nodes = PostgresCoordination(log._store, timeout_s=SESSION_S)
        session = await nodes.join(NodeInfo(1, "h", 1, "first"))
        await until(lambda: log._store.lineage.version == 1)
        keep(url, "older")
        assert await nodes.campaign(session) == 1
        put_back(url, "older", "cluster")
        await asyncio.wait_for(session.lost.wait(), HANG_S)  # noqa: TID251
        assert [what for what, _ in troubles] == ["store_went_back"]
        assert log._store.lineage.number == 2
        again = await nodes.join(NodeInfo(1, "h", 1, "first"))
        assert await nodes.campaign(again) > 1
        await nodes.close()


@pytest.mark.integration
async def test_a_change_on_an_older_version_is_not_made(postgres):
    url, troubles = postgres.url("primary", cluster=""), []
    async with opened(url, cluster="unchanged", troubles=troubles) as log:
        nodes = PostgresCoordination(log._store, timeout_s=3600.0)  # It does not renew meanwhile.
        session = await nodes.join(NodeInfo(1, "h", 1, "first"))
        keep(url, "unchanged")
        assert await nodes.campaign(session) == 1
        put_back(url, "unchanged", "cluster")
        with pytest.raises(LogUnavailable, match="version 1 after 2"):
            await nodes.write(1, ShardState(S0, 1, 1, (1,), (1,)))
        view = await nodes.read()
        assert log._store.lineage.number == 2
        assert view.controller_epoch == log._store.lineage.raised
        await nodes.close()
