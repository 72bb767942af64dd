"""Members built once for all tests of this folder, and a coordinator that they share."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.kafka.clients import (
    MEMBERS,
    MISSING,
    REBALANCE_MS,
    SESSION_MS,
    Built,
    Client,
    Member,
    command,
)
from tests.integration.kafka.fetch import java_jars
from tests.integration.kafka.served import TOPIC, Served
from tests.kit.documents import ROOT
from tests.kit.npm import install


@pytest.fixture(scope="session")
def node_members(tmp_path_factory: pytest.TempPathFactory) -> Path | str:
    """The members in JavaScript with their packages; or the reason that they cannot be had."""
    if reason := MISSING["node"]():
        return reason
    folder = tmp_path_factory.mktemp("node")
    for source in (*MEMBERS.glob("*.mjs"), *MEMBERS.glob("package*.json"), MEMBERS / ".npmrc"):
        shutil.copy(source, folder)
    shutil.copy(ROOT / "deploy/examples/kafka/roundrobin.mjs", folder)
    return install(folder) or folder


@pytest.fixture(scope="session")
def java_members(tmp_path_factory: pytest.TempPathFactory) -> Path | str:
    """The member in Java, compiled; or the reason that it cannot be."""
    if reason := MISSING["java"]():
        return reason
    folder = tmp_path_factory.mktemp("java")
    path = ":".join(map(str, java_jars()))
    subprocess.run(["javac", "-cp", path, "-d", folder, *MEMBERS.glob("*.java")], check=True)
    return folder


@pytest.fixture(scope="session")
def built(request: pytest.FixtureRequest) -> Callable[[Client], Built]:
    """Makes what a client's member needs, or skips the test with the reason."""

    def build(client: Client) -> Built:
        if reason := MISSING[client.family]():
            pytest.skip(reason)
        if client.family not in ("node", "java"):
            return Built()
        folder = request.getfixturevalue(f"{client.family}_members")
        if isinstance(folder, str):
            pytest.skip(folder)
        return Built(**{client.family: folder})

    return build


class Starter:
    """Starts members, and kills those that still run at the end."""

    def __init__(self, built: Callable[[Client], Built]) -> None:
        self._built = built
        self._members: list[Member] = []

    def __call__(
        self,
        client: Client,
        bootstrap: str,
        group: str,
        client_id: str,
        *,
        assignor: str = "",
        **more: Any,
    ) -> Member:
        options = {
            "bootstrap": bootstrap,
            "group": group,
            "topics": [TOPIC],
            "client_id": client_id,
            "session_ms": SESSION_MS,
            "rebalance_ms": REBALANCE_MS,
            "assignor": assignor or client.assignors[0],
            "instance": None,
            "more": client.needs,
            **more,
        }
        line = command(client, self._built(client), options)
        member = Member.start(client.name, client_id, line)
        self._members.append(member)
        return member

    def kill_all(self) -> None:
        """SIGKILL to all of them."""
        for member in self._members:
            member.kill()


@pytest.fixture(scope="session")
def starter(built: Callable[[Client], Built]) -> Callable[[], contextlib.AbstractContextManager]:
    """Makes a context in which members are started."""

    @contextlib.contextmanager
    def starting() -> Iterator[Starter]:
        start = Starter(built)
        try:
            yield start
        finally:
            start.kill_all()

    return starting


@pytest.fixture
def start(starter: Callable[[], contextlib.AbstractContextManager]) -> Iterator[Starter]:
    """Starts members of one test."""
    with starter() as server:
        yield server


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A coordinator for all tests of this folder; each has groups of its own."""
    served = Served(tmp_path_factory.mktemp("served"))
    yield served
    served.stop()
