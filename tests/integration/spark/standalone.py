"""Spark's standalone cluster: a master and two workers, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.kit.patience import HANG_S

ROOT = Path(__file__).parents[3]
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
SUBMIT = "org.apache.spark.deploy.SparkSubmit"
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
JDBC_JAR = Path("/usr/share/java/postgresql.jar")
WORKERS, CORES = 2, 3
"""More cores than there are: several applications share the cluster."""


@dataclass(frozen=True)
class Cluster:
    """Its master's address, and what executors need of us: packed, and unpacked for drivers.

    environment: of its processes, which know nothing of the project.
    """

    master: str
    archive: Path
    unpacked: Path
    environment: Mapping[str, str]


def _pack(folder: Path) -> tuple[Path, Path]:
    """Run `deploy/spark/pack`; returns the archive, and a folder with its content."""
    archive, unpacked = folder / "coordinator.tar.gz", folder / "unpacked"
    command = [str(ROOT / "deploy/spark/pack"), str(archive)]
    done = subprocess.run(
        command,
        env={
            **os.environ,
            "PYTHON": sys.executable,
            "EXTRAS": "connect,delta,iceberg,kafka,postgres,sql",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked)  # Our own archive; Debian's Python 3.11.2 has no filters.
    return archive, unpacked


def _home(folder: Path) -> Path:
    """A home of the installed Spark in which Python finds PySpark as it is installed.

    In Spark's own home it is a zip file, which each process of Python compiles anew: half of the
    time that one needs to begin, and Spark gives some of them ten seconds.
    """
    import py4j
    import pyspark

    spark = Path(pyspark.__file__).parent
    folder.mkdir()
    for name in ("bin", "jars"):
        (folder / name).symlink_to(spark / name)
    for zipped in (spark / "python/lib").glob("*.zip"):
        package = spark if zipped.name.startswith("pyspark") else Path(py4j.__file__).parent
        instead = folder / "python/lib" / zipped.name
        instead.mkdir(parents=True)
        (instead / package.name).symlink_to(package)
    return folder


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    folder.mkdir(exist_ok=True)
    archive, unpacked = _pack(folder)
    here = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    here |= {"SPARK_HOME": str(_home(folder / "home")), "SPARK_LOCAL_IP": "127.0.0.1"}
    with contextlib.ExitStack() as stack:
        flags = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        master = stack.enter_context(_started(MASTER, folder / "master.log", flags, here))
        found = r"Starting Spark master at (spark://127\.0\.0\.1:\d+)"
        address = _wait_for(master, folder / "master.log", found)
        cluster = Cluster(address, archive, unpacked, here)
        for number in range(WORKERS):
            stack.enter_context(worker(cluster, folder / f"worker-{number}", number))
        yield cluster


@contextlib.contextmanager
def worker(
    cluster: Cluster, folder: Path, number: int, *, cores: int = CORES
) -> Iterator[subprocess.Popen[bytes]]:
    """A worker on a host of its own: attempts at a task run on different ones.

    SIGPWR decommissions it.
    """
    folder.mkdir()
    flags = ["--host", host(number), "--webui-port", "0"]
    flags += ["--cores", str(cores), "--memory", "4g"]
    flags += ["--work-dir", str(folder), cluster.master]
    options = {"SPARK_WORKER_OPTS": "-Dspark.decommission.enabled=true"}
    log = folder / "worker.log"
    with _started(WORKER, log, flags, {**cluster.environment, **options}) as process:
        _wait_for(process, log, r"Successfully registered with master")
        yield process


def host(number: int) -> str:
    """Address of a worker."""
    return f"127.0.0.{number + 1}"


@contextlib.contextmanager
def connect_server(cluster: Cluster, folder: Path, settings: Mapping[str, str]) -> Iterator[str]:
    """A Spark Connect server on the cluster, as users start it; its address."""
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        **settings,
    }
    flags = ["--class", CONNECT, "--master", cluster.master]
    for name, value in settings.items():
        flags += ["--conf", f"{name}={value}"]
    environment = {
        **cluster.environment,
        "PYSPARK_PYTHON": sys._base_executable,
        "PYTHONPATH": str(cluster.unpacked),
        "SPARK_DAEMON_MEMORY": "768m",  # Counts for this process too.
    }
    log = folder / "connect.log"
    found = r"Spark Connect server started at: .*:([0-9]+)"
    with _started(SUBMIT, log, [*flags, "spark-internal"], environment) as process:
        yield f"sc://127.0.0.1:{_wait_for(process, log, found)}"


@contextlib.contextmanager
def _started(
    name: str, log: Path, flags: list[str], environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """A Java process of Spark's."""
    command = [f"{environment['SPARK_HOME']}/bin/spark-class", name, *flags]
    memory = {"SPARK_DAEMON_MEMORY": "256m"}
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env={**memory, **environment})
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _wait_for(process: subprocess.Popen[bytes], log: Path, pattern: str) -> str:
    """Wait for a line of a log; fail if the process ends without it."""
    deadline = time.monotonic() + 2 * HANG_S  # On a busy machine a JVM takes a minute to begin.
    while (match := re.search(pattern, log.read_text())) is None:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    return match[match.lastindex or 0]
