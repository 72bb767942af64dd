"""Connections to PostgreSQL: to the one host that may be written, checked, and bounded in time.

Connections are synchronous and used in threads. Calls are bounded by a watchdog that shuts the
socket down: a statement is never cancelled, because a commit whose wait for a synchronous standby
is cancelled is acknowledged and may exist on the primary alone.

Every host of the URL is asked. A standby is never taken, and of two hosts that can be written the
one of the later lineage (`postgres_schema.py`), then the later timeline: after a promotion the old
primary may still be there.

Source: https://www.postgresql.org/docs/current/libpq-connect.html
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, TypeAlias

import psycopg
from psycopg import pq, sql
from psycopg.conninfo import conninfo_to_dict

from coordinator.storage.access import StoreAccess
from coordinator.storage.log import Ambiguous, CannotOpen, LogError, LogUnavailable

PostgresConnection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

CONNECT_S = 2
"""Time limit of a connection attempt to one host, in whole seconds, as libpq has it."""
GRACE_S = 0.25
"""Time that other hosts have for an answer after one that suits."""
LOOK_S = 0.05
"""Interval at which the watchdog looks at deadlines."""
LASTING = ("53100", "3D000", "42501")
"""SQLSTATEs that waiting does not change: the disk is full, no such database, no privilege. So are
those of class 28, refused logins. libpq tells none of a connection that fails."""
COMMITTED_LOCALLY = "01000"
"""SQLSTATE of the warning with which a cancelled wait for a synchronous standby succeeds."""


class CommittedLocally(Exception):
    """A commit was acknowledged that the synchronous standby may not have."""


@dataclass(frozen=True, slots=True)
class Position:
    """Identity of a server's history, as the server tells it.

    system: of the database cluster, the same on its standbys. timeline: rises with each promotion.
    flushed: bytes of write-ahead log on its disk.
    """

    system: int
    timeline: int
    flushed: int


POSITION = (
    "SELECT system_identifier::text, substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8), "
    "pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0') FROM pg_control_system()"
)
"""Query for a `Position`; it needs no privileges. `pg_control_checkpoint` may lag behind."""


def position_of(row: tuple[Any, ...]) -> Position:
    system, timeline, flushed = row
    return Position(int(system), int(timeline, 16), int(flushed))


@dataclass(frozen=True, slots=True)
class Database:
    """A database, its hosts, and how to log in.

    schema: names the cluster of coordinators; clusters may share a database. session_s: session
    timeout of nodes, which the time limits of locks and idle transactions follow.
    """

    parameters: dict[str, Any]
    hosts: tuple[dict[str, str], ...]
    schema: str
    session_s: float = 2.0

    @classmethod
    def of(cls, url: str, schema: str, access: StoreAccess, session_s: float = 2.0) -> Database:
        """Parse a URL of libpq; what `access` says wins.

        Raises:
            CannotOpen: libpq does not understand it.
        """
        try:
            parameters: dict[str, Any] = dict(conninfo_to_dict(url))
        except psycopg.Error:  # Its text has parts of the URL, a password among them.
            raise CannotOpen(_NOT_UNDERSTOOD) from None
        hosts = _hosts_of(parameters)
        options = {
            "user": access.user,
            "password": access.password,
            "sslrootcert": access.ca_file,
            "sslcert": access.cert_file,
            "sslkey": access.key_file,
        }
        parameters |= {key: str(value) for key, value in options.items() if value}
        if "service" not in parameters and not all(map(_is_local, hosts)):
            parameters.setdefault("sslmode", "verify-full")
        return cls(parameters, hosts, schema, session_s)

    def __str__(self) -> str:
        """Hosts and database, without the password."""
        hosts = ",".join(
            host.get("host", "") + (f":{host['port']}" if "port" in host else "")
            for host in self.hosts
        )
        database = str(self.parameters.get("dbname", "")).rpartition("@")[2]
        return f"postgresql://{hosts}/{database}, cluster {self.schema}"


_NOT_UNDERSTOOD = (
    "libpq does not understand the URL of the store: a parameter is unknown, or a character of a "
    "name or password has to be encoded, such as / as %2F"
)
HOST_KEYS = ("host", "hostaddr", "port")
_SERVICE = threading.Lock()


def _hosts_of(parameters: dict[str, Any]) -> tuple[dict[str, str], ...]:
    """Take the hosts out of parameters: one set each. A service, or the environment, may name them.

    Raises:
        CannotOpen: the lists have different lengths, or have parts of a password.
    """
    known = {key: str(parameters.pop(key)) for key in HOST_KEYS if key in parameters}
    if "host" not in known and "hostaddr" not in known:
        known = _defaults(parameters.get("service")) | known
    lists = {key: value.split(",") for key, value in known.items()}
    count = max((len(value) for value in lists.values()), default=1)
    if len(lists.get("port", ())) == 1:
        lists["port"] *= count
    if any(len(value) != count for value in lists.values()):
        raise CannotOpen("the URL of the store names hosts and ports in different numbers")
    if not all(port.isdecimal() for port in lists.get("port", ()) if port):
        raise CannotOpen(_NOT_UNDERSTOOD)
    if any("@" in name[1:] for name in lists.get("host", ())):
        raise CannotOpen(_NOT_UNDERSTOOD)
    return tuple(
        {key: value[number] for key, value in lists.items() if value[number]}
        for number in range(count)
    )


def _defaults(service: str | None) -> dict[str, str]:
    """Hosts that libpq connects to if none is named. It tells a service's to its variable alone."""
    with _SERVICE:
        before = os.environ.get("PGSERVICE")
        try:
            if service is not None:
                os.environ["PGSERVICE"] = service
            defaults = {
                option.keyword.decode(): option.val for option in pq.Conninfo.get_defaults()
            }
        finally:
            os.environ.pop("PGSERVICE", None)
            if before is not None:
                os.environ["PGSERVICE"] = before
    return {key: value.decode() for key in HOST_KEYS if (value := defaults.get(key))}


def _is_local(host: dict[str, str]) -> bool:
    """True for a socket's folder and for the loopback."""
    name = host.get("hostaddr") or host.get("host", "")
    if not name or name.startswith(("/", "@")) or name == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ip_address(name).is_loopback
    return False


# --- Time limits --------------------------------------------------------------------------------


class Watchdog:
    """Shuts the sockets of connections down that have not answered in time."""

    def __init__(self) -> None:
        self._due: dict[PostgresConnection, float] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-watchdog", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def limit(self, connection: PostgresConnection, seconds: float) -> Iterator[None]:
        """Bound what is done with a connection inside. After that it is broken, and raises."""
        with self._lock:
            self._due[connection] = time.monotonic() + seconds
        try:
            yield
        finally:
            with self._lock:
                self._due.pop(connection, None)

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.wait(LOOK_S):
            now = time.monotonic()
            with self._lock:
                for connection in [overdue for overdue, due in self._due.items() if due <= now]:
                    del self._due[connection]
                    _shut_down(connection)


def _shut_down(connection: PostgresConnection) -> None:
    with contextlib.suppress(OSError, psycopg.Error):
        with socket.socket(fileno=os.dup(connection.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)


# --- Connecting ---------------------------------------------------------------------------------


_Rank = tuple[int, int, str]
"""Lineage, timeline, and when the server began to run, which tells it from others."""
_Candidate = tuple[_Rank, str, PostgresConnection]
"""Rank, name and connection of a host that can be written."""


def _close(late: futures.Future[_Candidate | LogError | None]) -> None:
    if isinstance(answer := late.result(), tuple):
        answer[2].close()


def _name_of(host: dict[str, str]) -> str:
    return ":".join(host.values()) or "the server"


@dataclass(slots=True)
class Server:
    """The database of a cluster: opens connections to the host that may be written.

    host: the one that was taken last; rivals: others that could be written then.
    """

    target: Database
    watchdog: Watchdog = field(default_factory=Watchdog)
    host: str = ""
    rivals: tuple[str, ...] = ()

    def connect(self, least: int = 0) -> PostgresConnection:
        """Open a connection, in a thread.

        Args:
            least: a lineage that is known to have begun; 0: none is. Once a host of it, or of a
                later one, has answered, the others have `GRACE_S` left. With 0 all are awaited.
        Raises:
            LogUnavailable: no host can be written.
            CannotOpen: the server cannot keep a log, or a pooler is in the way.
        """
        connection = self._best(least)
        try:
            with self._bounded(connection):
                self._prepare(connection)
                if connection.info.backend_pid != server_pid(connection):
                    self._refuse_transaction_pooler(connection)
        except psycopg.Error as error:
            connection.close()
            raise failure_of(error, is_sent=False) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _bounded(self, connection: PostgresConnection) -> contextlib.AbstractContextManager[None]:
        return self.watchdog.limit(connection, CONNECT_S)

    def _best(self, least: int) -> PostgresConnection:
        """A connection to the host of the latest lineage and timeline."""
        answers = self._answers(least)
        failures = [answer for answer in answers if isinstance(answer, LogError)]
        reached = [answer for answer in answers if isinstance(answer, tuple)]
        if not reached:
            reason = "; ".join(str(failure) for failure in failures) or "every host is a standby"
            lasting = bool(failures) and all(
                getattr(one_failure, "is_lasting", False) for one_failure in failures
            )
            raise LogUnavailable(f"{self.target}: {reason}", is_lasting=lasting)
        reached.sort(key=lambda one: one[0])
        *others, ((*_, taken), self.host, best) = reached
        for _, _, connection in others:
            connection.close()
        if not least:  # A server may have two names.
            self.rivals = tuple(name for (*_, server), name, _ in others if server != taken)
        return best

    def _answers(self, least: int) -> list[_Candidate | LogError | None]:
        """The answers of hosts, all asked at once; see `connect`."""
        hosts = self.target.hosts
        threads = futures.ThreadPoolExecutor(len(hosts), "store-connect")
        waiting = {threads.submit(self._candidate, host) for host in hosts}
        threads.shutdown(wait=False)
        reached: list[_Candidate | LogError | None] = []
        wait_s = None
        while waiting:
            done, waiting = futures.wait(waiting, wait_s, futures.FIRST_COMPLETED)
            if not done:
                break
            reached += [future.result() for future in done]
            if least and any(
                isinstance(answer, tuple) and answer[0][0] >= least for answer in reached
            ):
                wait_s = GRACE_S
        for late in waiting:
            late.add_done_callback(_close)
        return reached

    def _candidate(self, host: dict[str, str]) -> _Candidate | LogError | None:
        """Rank, name and connection of a host; None: it is a standby."""
        try:
            connection = self._open(host)
        except psycopg.Error as error:
            return failure_of(error, is_sent=False)
        rank = None
        try:
            with self._bounded(connection):
                rank = self._rank(connection)
        except psycopg.Error as error:
            return failure_of(error, is_sent=False)
        finally:
            if rank is None:
                connection.close()
        return None if rank is None else (rank, _name_of(host), connection)

    def _open(self, host: dict[str, str]) -> PostgresConnection:
        options = {"connect_timeout": CONNECT_S, "application_name": "coordinator"}
        return psycopg.connect(
            **{**options, **self.target.parameters, **host, "client_encoding": "UTF8"},
            autocommit=True,
        )

    def _rank(self, connection: PostgresConnection) -> _Rank | None:
        """Rank of a host; None: a standby, or another server that refuses writes."""
        row = connection.execute(
            "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on',"
            " to_regclass(%s), pg_postmaster_start_time()::text",
            (f'"{self.target.schema}".cluster',),
        ).fetchone()
        assert row is not None
        is_standby, table, started = row
        if is_standby:
            return None
        lineage = 0
        if table is not None:
            named = sql.SQL("SELECT lineage FROM {}.cluster").format(self._schema)
            lineage = (connection.execute(named).fetchone() or (0,))[0]
        position = connection.execute(POSITION).fetchone()
        assert position is not None
        return lineage, position_of(position).timeline, started

    @property
    def _schema(self) -> sql.Identifier:
        return sql.Identifier(self.target.schema)

    def _prepare(self, connection: PostgresConnection) -> None:
        """Settings of a connection. `SET` rather than `options`, which PgBouncer refuses."""
        if connection.info.server_version < 140_000:
            raise CannotOpen(f"{self.target}: PostgreSQL 14 or later is needed")
        row = connection.execute(
            "SELECT current_setting('fsync'), current_setting('synchronous_commit')"
        ).fetchone()
        assert row is not None
        fsync, synchronous = row
        if fsync == "off":
            raise CannotOpen(f"{self.target}: it runs with fsync = off, and would lose commits")
        third_ms = round(self.target.session_s * 1_000 / 3)
        settings = {
            "search_path": f'"{self.target.schema}"',
            "statement_timeout": "0",
            "lock_timeout": str(third_ms),
            "default_transaction_isolation": "read committed",
            "idle_session_timeout": "0",
            "idle_in_transaction_session_timeout": str(third_ms),
        }
        if synchronous in ("off", "local"):
            settings["synchronous_commit"] = "on"
        if connection.info.server_version >= 170_000:
            settings["transaction_timeout"] = "0"
        for name, value in settings.items():
            connection.execute("SELECT set_config(%s, %s, false)", (name, value))

    def _refuse_transaction_pooler(self, connection: PostgresConnection) -> None:
        """Raise `CannotOpen` unless the connection keeps one server process to itself."""
        why = f"{self.target}: a pooler in transaction mode is in the way: use session mode"
        pid = server_pid(connection)
        with contextlib.closing(self._open(self._host_of(connection))) as other:
            with self._bounded(other), other.transaction():
                other.execute("SELECT 1")
                connection.execute("LISTEN probe_of_the_pooler")
                listens = connection.execute("SELECT pg_listening_channels()").fetchall()
                if server_pid(connection) != pid or ("probe_of_the_pooler",) not in listens:
                    raise CannotOpen(why)
        connection.execute("UNLISTEN probe_of_the_pooler")

    @staticmethod
    def _host_of(connection: PostgresConnection) -> dict[str, str]:
        info = connection.info
        return {"host": info.host, "hostaddr": info.hostaddr, "port": str(info.port)}


def server_pid(connection: PostgresConnection) -> int:
    """Number of the server process that answers now; poolers may change it."""
    row = connection.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    return int(row[0])


def replication_in_words(connection: PostgresConnection) -> str:
    """The replication mode, in words, and what a promotion of a standby loses."""
    row = connection.execute(
        "SELECT current_setting('synchronous_standby_names'), "
        "current_setting('synchronous_commit'), (SELECT count(*) FROM pg_stat_replication)"
    ).fetchone()
    assert row is not None
    names, mode, standbys = row
    if names and mode == "remote_write":
        return "remote_write: a promotion may lose what the standby had not flushed; it is noticed"
    if names:
        return f"synchronous ({mode}): a promotion of a synchronous standby loses nothing"
    if standbys:
        return (
            f"{standbys} asynchronous standbys: a promotion loses the last commits; it is noticed"
        )
    return "no standby is connected"


def failure_of(error: Exception, *, is_sent: bool) -> LogError:
    """Translate an error of a statement.

    Args:
        is_sent: the statement may have reached the server.
    """
    if isinstance(error, LogError):
        return error
    reason = " ".join(str(error).split()) or type(error).__name__
    state = getattr(error, "sqlstate", None)
    if isinstance(error, CommittedLocally) or (is_sent and _ends_connection(error)):
        return Ambiguous(reason)
    return LogUnavailable(reason, is_lasting=state is not None and is_lasting(state))


def _ends_connection(error: Exception) -> bool:
    """True if no answer came, or one that ends the connection: a commit under way may be done.

    A server that shuts down says so, and so does a pooler (class 08) whose server has died.
    """
    state = getattr(error, "sqlstate", None)
    if state is None or state.startswith("08"):
        return True
    if not isinstance(error, psycopg.Error):
        return False
    return (error.diag.severity_nonlocalized or error.diag.severity) in ("FATAL", "PANIC")


def is_lasting(state: str) -> bool:
    """True for a SQLSTATE that waiting does not change."""
    return state.startswith("28") or state in LASTING
