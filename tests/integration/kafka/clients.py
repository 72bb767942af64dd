"""Kafka's clients as members: one program for each in `members/`, started as a process.

`CLIENTS` says what each can do; the table in deploy/docs/kafka-clients.md is checked against it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.integration.kafka.fetch import java_jars
from tests.kit.npm import missing_node
from tests.kit.patience import HANG_S, PATIENCE

MEMBERS = Path(__file__).parent / "members"
SESSION_MS = round(60_000 * PATIENCE)
"""Longer than a restart of the coordinator takes: clients give a session up by their own clock."""
SHORT_SESSION_MS = round(6_000 * PATIENCE)
"""Session of members that are to be killed."""
REBALANCE_MS = round(90_000 * PATIENCE)

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client library.

    assignors: those that it offers and that are tested here, its default first.
    software: its name in ApiVersions, as a pattern; empty: it does not say.
    survives: it keeps its membership while the coordinator is away.
    returns: if it does not, it joins again by itself.
    rejoins: its leader joins again at times although nothing has changed.
    needs: settings other than its defaults, without which it does not stay.
    family: what it takes to run it: "python", "node", "java" or "kcat".
    """

    name: str
    version: str
    program: str
    family: str
    assignors: tuple[str, ...]
    software: str
    is_static: bool = True
    commits: bool = True
    survives: bool = True
    returns: bool = True
    rejoins: bool = False
    needs: Mapping[str, object] = field(default_factory=dict)


RANGE, ROUND_ROBIN, COOPERATIVE = "range", "roundrobin", "cooperative-sticky"
CONFLUENT = Client(
    name="confluent-kafka",
    version="2.16",
    program="confluent_member.py",
    family="python",
    assignors=(RANGE, ROUND_ROBIN, COOPERATIVE),
    software="confluent-kafka-python",
)
KAFKA_PYTHON = Client(
    name="kafka-python",
    version="3.0",
    program="kafka_python_member.py",
    family="python",
    assignors=(RANGE, ROUND_ROBIN, COOPERATIVE),
    software="kafka-python",
    rejoins=True,  # When the metadata that it reads anew seem to differ from those it assigned by.
)
AIOKAFKA = Client(
    name="aiokafka",
    version="0.14",
    program="aiokafka_member.py",
    family="python",
    assignors=(ROUND_ROBIN, RANGE),
    software="",
)
KAFKAJS = Client(
    name="kafkajs",
    version="2.2",
    program="kafkajs_member.mjs",
    family="node",
    assignors=("RoundRobinAssigner", ROUND_ROBIN),
    software="",
    is_static=False,
    survives=False,  # Its consumer is started anew if a connection is closed under it.
)
PLATFORMATIC = Client(
    name="@platformatic/kafka",
    version="1.35",
    program="platformatic_member.mjs",
    family="node",
    assignors=(ROUND_ROBIN,),
    software="platformatic-kafka",
    # It puts a topic's id where Fetch 12 has the name, and topics have no ids here.
    needs={"retries": True},
)
JAVA = Client(
    name="kafka-clients (Java)",
    version="4.3",
    program="Member.java",
    family="java",
    assignors=(RANGE, ROUND_ROBIN, COOPERATIVE),
    software="apache-kafka-java",
)
KCAT = Client(
    name="kcat",
    version="1.7",
    program="kcat_member.py",
    family="kcat",
    assignors=(RANGE,),
    software="librdkafka",
    commits=False,
    survives=False,
    returns=False,  # It ends when no broker can be reached.
)
CLIENTS = (CONFLUENT, KAFKA_PYTHON, AIOKAFKA, KAFKAJS, PLATFORMATIC, JAVA, KCAT)

JAVA_ASSIGNORS = {
    RANGE: "RangeAssignor",
    ROUND_ROBIN: "RoundRobinAssignor",
    COOPERATIVE: "CooperativeStickyAssignor",
}


# --- What is needed -----------------------------------------------------------------------------


def missing_python() -> str | None:
    return None


def missing_kcat() -> str | None:
    return None if shutil.which("kcat") else "kcat is not installed (Debian: kcat)"


def missing_java() -> str | None:
    if shutil.which("javac") is None:
        return "no Java compiler (javac) is installed"
    if not java_jars():
        return "Java's kafka-clients were not fetched: python -m tests.integration.kafka.fetch java"
    return None


MISSING: dict[str, Callable[[], str | None]] = {
    "python": missing_python,
    "kcat": missing_kcat,
    "node": missing_node,
    "java": missing_java,
}


# --- Members ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Built:
    """Folders in which members were installed or compiled; made by fixtures."""

    node: Path | None = None
    java: Path | None = None


@dataclass(slots=True)
class Member:
    """A member as a process of its own group of processes, and what it printed."""

    process: subprocess.Popen[str]
    name: str
    client_id: str
    owned: set[Partition] | None = None
    """The partitions it printed last; None: it was assigned none yet."""
    changes: int = 0
    """Number of times that it has printed other partitions than before."""
    committed: list[dict[Partition, int]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    has_ended: bool = False
    """True once it prints nothing more."""
    _changed: threading.Condition = field(default_factory=threading.Condition)

    @classmethod
    def start(cls, name: str, client_id: str, command: list[str]) -> Member:
        """Start the program; its lines are read by threads."""
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        member = cls(process, name, client_id)
        for reader in (member._read, member._read_log):
            threading.Thread(target=reader, daemon=True).start()
        return member

    def commit(self) -> dict[Partition, int]:
        """Have it commit for all its partitions; returns what it said it has stored."""
        count = len(self.committed)
        self._tell("commit")
        self.wait(lambda: len(self.committed) > count)
        return self.committed[-1]

    def leave(self) -> None:
        """Have it leave the group and end."""
        self._tell("leave")
        self.process.wait(HANG_S)

    def kill(self) -> None:
        """SIGKILL to it and to what it has started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait(self, holds: Callable[[], object]) -> None:
        """Wait until it has printed what makes this true.

        Raises:
            AssertionError: it never does; with what it wrote to standard error.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.has_ended or holds(), HANG_S):
                raise AssertionError(f"{self}: {self.owned}\n{self.tail()}")
        self.check()

    def check(self) -> None:
        """Raise AssertionError if the process has ended by itself."""
        assert not self.has_ended, f"{self} has ended\n{self.tail()}"

    def tail(self) -> str:
        """The last lines of its standard error."""
        return "\n".join(self.log[-30:])

    def __str__(self) -> str:
        return f"{self.name} {self.client_id}"

    def _tell(self, order: str) -> None:
        self.check()
        assert self.process.stdin is not None
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                self._take(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self.has_ended = True
            self._changed.notify_all()

    def _take(self, event: dict[str, Any]) -> None:
        match event:
            case {"event": "owned", "partitions": partitions}:
                owned = {(topic, number) for topic, number in partitions}
                # A second round that brings nothing may be told after all is shared.
                self.changes += owned != self.owned
                self.owned = owned
            case {"event": "committed", "offsets": offsets}:
                self.committed.append({(topic, n): offset for topic, n, offset in offsets})
            case _:
                raise AssertionError(f"{self} printed {event}")

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))


def command(client: Client, built: Built, options: dict[str, Any]) -> list[str]:
    """The command line of a member."""
    if client.family == "java":
        return _java(built, options)
    argument = json.dumps(options)
    if client.family == "node":
        assert built.node is not None
        return ["node", str(built.node / client.program), argument]
    return [sys.executable, str(MEMBERS / client.program), argument]


def _java(built: Built, options: dict[str, Any]) -> list[str]:
    assert built.java is not None
    deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
    assignors = [JAVA_ASSIGNORS[name] for name in options["assignor"].split(",")]
    properties = {
        "bootstrap.servers": options["bootstrap"],
        "group.id": options["group"],
        "client.id": options["client_id"],
        "session.timeout.ms": options["session_ms"],
        "max.poll.interval.ms": options["rebalance_ms"],
        "heartbeat.interval.ms": 300,
        "partition.assignment.strategy": ",".join(
            f"org.apache.kafka.clients.consumer.{name}" for name in assignors
        ),
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
        "metadata.max.age.ms": 2_000,
        # Its default, to begin anew when no broker answers, forgets the topics, and its leader
        # rebalances when they are there again. Where there are several nodes, one always answers.
        "metadata.recovery.strategy": "none",
        "key.deserializer": deserializer,
        "value.deserializer": deserializer,
        "topics": ",".join(options["topics"]),
        **options.get("more", {}),
    }
    if options["instance"]:
        properties["group.instance.id"] = options["instance"]
    path = ":".join(map(str, [built.java, *java_jars()]))
    flags = ["-cp", path, "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-Xmx64m"]
    return ["java", *flags, "Member", *(f"{name}={value}" for name, value in properties.items())]
