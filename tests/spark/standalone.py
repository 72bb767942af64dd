"""Spark's standalone cluster: a master and two workers, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from tests.patience import HANG_S

ROOT = Path(__file__).parents[2]
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
WORKERS, CORES = 2, 3
"""More cores than there are: several applications share the cluster."""


def pack(folder: Path) -> tuple[Path, Path]:
    """Run `deploy/spark/pack`; returns the archive, and a folder with its content."""
    archive, unpacked = folder / "coordinator.tar.gz", folder / "unpacked"
    command = [str(ROOT / "deploy/spark/pack"), str(archive)]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHON": sys.executable, "EXTRAS": "files,iceberg,kafka,sql"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked, filter="data")
    return archive, unpacked


@contextlib.contextmanager
def cluster(folder: Path):
    """The master's address. The daemons know nothing of the project: executors get an archive."""
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        flags = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        log = _start(stack, MASTER, folder / "master.log", flags)
        address = _wait_for(log, r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
        for number in range(WORKERS):
            flags = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", str(CORES)]
            flags += ["--memory", "4g"]
            place = ["--work-dir", str(folder / f"work-{number}"), address]
            log = _start(stack, WORKER, folder / f"worker-{number}.log", [*flags, *place])
            _wait_for(log, r"Successfully registered with master")
        yield address


def _start(stack: contextlib.ExitStack, name: str, log: Path, flags: list[str]) -> Path:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "SPARK_HOME")}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    file = stack.enter_context(log.open("w"))
    import pyspark

    command = [str(Path(pyspark.__file__).parent / "bin/spark-class"), name, *flags]
    process = subprocess.Popen(command, stdout=file, stderr=file, env=environment)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return log


def _wait_for(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + 2 * HANG_S  # On a busy machine a JVM takes a minute to begin.
    while (found := re.search(pattern, log.read_text())) is None:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    return found[found.lastindex or 0]
