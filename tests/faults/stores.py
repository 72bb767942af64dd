"""Real stores for tests: three nodes each on loopback, started here and stopped by their PID."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from tests.serving import free_port

START_S = 30.0
NODES = 3


def missing_etcd() -> str | None:
    """Why etcd cannot be started here; None if it can."""
    return None if shutil.which("etcd") else "etcd is not installed (Debian: etcd-server)"


class EtcdCluster:
    """Three etcd processes. Use it as a context manager.

    Args:
        more: further flags of every node.
        scheme: of the addresses clients use; `https` needs flags for the certificates.
    """

    def __init__(self, *more: str, scheme: str = "http") -> None:
        self._scheme = scheme
        self.folder = Path(tempfile.mkdtemp(prefix="etcd-"))
        self._clients = [free_port() for _ in range(NODES)]
        self._peers = [free_port() for _ in range(NODES)]
        self._more = more
        self.processes: list[subprocess.Popen | None] = [None] * NODES

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(f"127.0.0.1:{port}" for port in self._clients)

    def __enter__(self) -> EtcdCluster:
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
        peers = ",".join(f"n{n}=http://127.0.0.1:{port}" for n, port in enumerate(self._peers))
        client = f"{self._scheme}://127.0.0.1:{self._clients[number]}"
        peer = f"http://127.0.0.1:{self._peers[number]}"
        log = (self.folder / f"n{number}.log").open("a")
        self.processes[number] = subprocess.Popen(
            [
                "etcd", "--name", f"n{number}", "--data-dir", str(self.folder / f"n{number}"),
                "--listen-client-urls", client, "--advertise-client-urls", client,
                "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                "--initial-cluster", peers, "--initial-cluster-token", self.folder.name,
                "--heartbeat-interval", "50", "--election-timeout", "500",
                "--logger", "zap", "--log-level", "warn", *self._more,
            ],
            stdout=log, stderr=log,
            env={**os.environ, "ETCD_UNSUPPORTED_ARCH": ""},
        )  # fmt: skip
        log.close()

    def wait(self) -> None:
        """Until every node accepts connections."""
        until = time.monotonic() + START_S
        for port in self._clients:
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                assert time.monotonic() < until, f"etcd did not start: see {self.folder}"
                time.sleep(0.05)

    def signal(self, number: int, what: signal.Signals) -> None:
        self.processes[number].send_signal(what)

    def kill(self, number: int) -> None:
        """SIGKILL a node; `start` brings it back on its data."""
        process, self.processes[number] = self.processes[number], None
        if process is not None:
            process.kill()
            process.wait()
