"""Real stores for tests, on loopback, started here and stopped by their PID: three nodes each, or a
primary and standbys."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.kit.patience import HANG_S
from tests.kit.serving import free_port

START_S = HANG_S
NODES = 3


def missing_etcd() -> str | None:
    """Reason why etcd cannot be started here; None if it can."""
    return None if shutil.which("etcd") else "etcd is not installed (Debian: etcd-server)"


ZOOKEEPER_JAR = Path("/usr/share/java/zookeeper.jar")
ZOOKEEPER_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


def missing_zookeeper() -> str | None:
    """Reason why ZooKeeper cannot be started here; None if it can."""
    if not ZOOKEEPER_JAR.exists():
        return "ZooKeeper is not installed (Debian: zookeeper)"
    return None if shutil.which("java") else "no Java found; ZooKeeper needs one"


class Cluster:
    """Three processes of a store on loopback. Use it as a context manager."""

    name = ""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        self._clients = [free_port() for _ in range(NODES)]
        self._peers = [free_port() for _ in range(NODES)]
        self.processes: list[subprocess.Popen | None] = [None] * NODES

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(f"127.0.0.1:{port}" for port in self._clients)

    def __enter__(self) -> Self:
        for number in range(NODES):
            self.start(number)
        self.wait()
        return self

    def __exit__(self, *_: object) -> None:
        for number in range(NODES):
            self.kill(number)
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, number: int) -> None:
        """Start a node, for the first time or on the data it has."""
        with (self.folder / f"n{number}.log").open("a") as log:
            command = [str(part) for part in self._command(number)]
            self.processes[number] = subprocess.Popen(command, stdout=log, stderr=log)

    def _command(self, number: int) -> list:
        raise NotImplementedError

    def wait(self) -> None:
        """Wait until every node accepts connections."""
        until = time.monotonic() + START_S
        for port in self._clients:
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                assert time.monotonic() < until, f"{self.name} did not start: see {self.folder}"
                time.sleep(0.05)

    def signal(self, number: int, what: signal.Signals) -> None:
        self.processes[number].send_signal(what)

    def kill(self, number: int) -> None:
        """SIGKILL a node; `start` brings it back on its data."""
        process, self.processes[number] = self.processes[number], None
        if process is not None:
            process.kill()
            process.wait()


class EtcdCluster(Cluster):
    """Three etcd processes.

    Args:
        more: further flags of every node.
        scheme: of the addresses clients use; `https` needs flags for the certificates.
    """

    name = "etcd"

    def __init__(self, *more: str, scheme: str = "http") -> None:
        super().__init__()
        self._more = more
        self._scheme = scheme

    def wait(self) -> None:
        """Wait until every node knows a leader."""
        super().wait()
        until = time.monotonic() + START_S
        for endpoint in self.endpoints if self._scheme == "http" else ():
            while True:
                with contextlib.suppress(OSError):
                    with urllib.request.urlopen(f"http://{endpoint}/health", timeout=1) as answer:
                        if json.load(answer)["health"] == "true":
                            break
                assert time.monotonic() < until, f"etcd has no leader: see {self.folder}"
                time.sleep(0.05)

    def _command(self, number: int) -> list:
        peers = ",".join(f"n{n}=http://127.0.0.1:{port}" for n, port in enumerate(self._peers))
        client = f"{self._scheme}://127.0.0.1:{self._clients[number]}"
        peer = f"http://127.0.0.1:{self._peers[number]}"
        return [
            "etcd", "--name", f"n{number}", "--data-dir", self.folder / f"n{number}",
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", peers, "--initial-cluster-token", self.folder.name,
            "--heartbeat-interval", "50", "--election-timeout", "500",
            "--logger", "zap", "--log-level", "warn", *self._more,
        ]  # fmt: skip


class ZooKeeperCluster(Cluster):
    """Three ZooKeeper servers.

    Args:
        tick_ms: with 2,000, as they are delivered, they grant sessions of 4 s and more.
    """

    name = "zookeeper"

    def __init__(self, *, tick_ms: int = 200) -> None:
        super().__init__()
        self._tick_ms = tick_ms
        self._elections = [free_port() for _ in range(NODES)]

    def _command(self, number: int) -> list:
        data = self.folder / f"n{number}"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(str(number + 1))
        servers = [
            f"server.{n + 1}=127.0.0.1:{peer}:{election}"
            for n, (peer, election) in enumerate(zip(self._peers, self._elections, strict=True))
        ]
        lines = [
            f"tickTime={self._tick_ms}", "initLimit=50", "syncLimit=20", f"dataDir={data}",
            f"clientPort={self._clients[number]}", "clientPortAddress=127.0.0.1",
            "admin.enableServer=false", "maxSessionTimeout=60000",
            "4lw.commands.whitelist=*", *servers,
        ]  # fmt: skip
        configuration = self.folder / f"n{number}.cfg"
        configuration.write_text("\n".join(lines) + "\n")
        return [
            "java", "-Xmx192m", "-Dzookeeper.admin.enableServer=false",
            "-cp", f"/etc/zookeeper/conf:{ZOOKEEPER_JAR}", ZOOKEEPER_MAIN, configuration,
        ]  # fmt: skip


# --- PostgreSQL ---------------------------------------------------------------------------------


def postgres_programs() -> Path | None:
    """Folder of the programs of the newest PostgreSQL here; None: there is none."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: path.parts[-3]
    )
    if found:
        return found[-1].parent
    initdb = shutil.which("initdb")
    return Path(initdb).parent if initdb else None


def missing_postgres() -> str | None:
    """Reason why PostgreSQL cannot be started here; None if it can."""
    if postgres_programs() is None:
        return "PostgreSQL is not installed (Debian: postgresql)"
    return None


class Postgres:
    """A primary on loopback, and standbys made of it. Use it as a context manager.

    PostgreSQL does not run as root: then it is started as the user `postgres`.

    Args:
        more: settings of the primary and of its standbys, by name.
    """

    def __init__(self, **more: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._programs = postgres_programs()
        # setpriv, and not `user=` of subprocess, whose way to fork gRPC's threads do not bear.
        as_postgres = "setpriv --reuid=postgres --regid=postgres --init-groups"
        self._prefix = as_postgres.split() if os.getuid() == 0 else []
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "wal_level": "replica",
            "max_wal_senders": "8",
            "hot_standby": "on",
            "max_connections": "200",
            "shared_buffers": "32MB",
            **more,
        }
        self.ports: dict[str, int] = {}
        self.processes: dict[str, subprocess.Popen] = {}
        if self._prefix:
            shutil.chown(self.folder, "postgres", "postgres")

    def __enter__(self) -> Self:
        self._run(
            "initdb", "--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8",
            "--locale=C", "-D", self.folder / "primary",
        )  # fmt: skip
        with (self.folder / "primary" / "pg_hba.conf").open("a") as rules:
            rules.write("host replication all 127.0.0.1/32 trust\n")
        self.start("primary")
        return self

    def __exit__(self, *_: object) -> None:
        for name in tuple(self.processes):
            self.kill(name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, *names: str, cluster: str = "coordinator") -> str:
        """URL of the store on some of the servers, or on all."""
        hosts = ",".join(f"127.0.0.1:{self.ports[name]}" for name in names or self.ports)
        query = f"?cluster={cluster}" if cluster else ""
        return f"postgresql://postgres@{hosts}/postgres{query}"

    def start(self, name: str) -> None:
        """Start a server on the data it has, and wait until it accepts connections."""
        port = self.ports.setdefault(name, free_port())
        settings = {**self._settings, "port": str(port)}
        flags = [part for key, value in settings.items() for part in ("-c", f"{key}={value}")]
        with (self.folder / f"{name}.log").open("a") as log:
            self.processes[name] = subprocess.Popen(
                [*self._prefix, self._programs / "postgres", "-D", self.folder / name, *flags],
                stdout=log, stderr=log, cwd=self.folder,
            )  # fmt: skip
        ready = [self._programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        until = time.monotonic() + START_S
        while subprocess.run(ready, check=False).returncode != 0:
            log_file = self.folder / f"{name}.log"
            assert time.monotonic() < until, f"{name} did not start: {log_file.read_text()}"
            time.sleep(0.05)

    def add_standby(self, name: str, of: str = "primary", **more: str) -> None:
        """Make a standby of a server, and start it. It streams asynchronously."""
        self._run(
            "pg_basebackup", "-h", "127.0.0.1", "-p", str(self.ports[of]), "-U", "postgres",
            "-D", self.folder / name, "-R", "-X", "stream", "-c", "fast", "--no-sync",
        )  # fmt: skip
        with (self.folder / name / "postgresql.auto.conf").open("a") as settings:
            for key, value in {"cluster_name": name, **more}.items():
                settings.write(f"{key} = '{value}'\n")
        self.start(name)

    def promote(self, name: str) -> None:
        """Promote a standby, and wait until it takes writes."""
        self._run("pg_ctl", "promote", "-w", "-D", self.folder / name)

    def signal(self, name: str, what: signal.Signals) -> None:
        """Send a signal to the postmaster of a server."""
        self.processes[name].send_signal(what)

    def kill(self, name: str) -> None:
        """Stop a server at once, without a checkpoint; `start` brings it back on its data."""
        process = self.processes.pop(name, None)
        if process is not None:
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGQUIT)
            process.wait()

    def _run(self, program: str, *arguments: object) -> None:
        command = [*self._prefix, *map(str, (self._programs / program, *arguments))]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=self.folder)
        failure = f"{program} ended with {done.returncode}: {done.stdout}{done.stderr}"
        assert done.returncode == 0, failure


class LonePostgres(Postgres):
    """A primary without standbys: the server with number 0, as the other stores count theirs."""

    name = "postgresql"

    @property
    def endpoints(self) -> tuple[str, ...]:
        return (f"127.0.0.1:{self.ports['primary']}",)

    def start(self, name: str | int) -> None:
        super().start(name or "primary")

    def kill(self, name: str | int) -> None:
        super().kill(name or "primary")

    def signal(self, name: str | int, what: signal.Signals) -> None:
        super().signal(name or "primary", what)


def url_of(kind: str, servers: Sequence[str], name: str) -> str:
    """The setting `store` of nodes whose cluster has a name."""
    hosts = ",".join(servers)
    if kind == "postgresql":
        return f"postgresql://postgres@{hosts}/postgres?cluster={name}"
    return f"{kind}://{hosts}/{name}"


def store_url(store: Cluster | Postgres, name: str) -> str:
    """The setting `store` of nodes whose cluster has a name."""
    if isinstance(store, Postgres):
        return store.url(cluster=name)
    return url_of(store.name, store.endpoints, name)
