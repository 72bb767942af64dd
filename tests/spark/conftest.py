"""One Spark session for all tests, on a standalone cluster of two workers.

Executors run a Python that has nothing of ours: library and dependencies reach them in the
archive that `deploy/spark/pack` makes, as `deploy/spark/README.md` tells users to do it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.spark import standalone


@dataclass(frozen=True)
class Cluster:
    """Its master's address, and what executors need of us: packed, and unpacked for drivers."""

    master: str
    archive: Path
    unpacked: Path


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    archive, unpacked = standalone.pack(folder)
    with standalone.cluster(folder / "daemons") as master:
        yield Cluster(master, archive, unpacked)


@pytest.fixture(scope="session")
def spark(cluster, tmp_path_factory):
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        # Java keeps these when it is started, and other tests are spared them.
        # Of this machine, not of the environment that the tests run in.
        patch.setenv("PYSPARK_PYTHON", sys._base_executable)
        patch.setenv("PYTHONPATH", str(cluster.unpacked))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.delenv("SPARK_HOME", raising=False)
        session = (
            SparkSession.builder.master(cluster.master)
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.executor.memory", "1g")
            .config("spark.executor.cores", "1")
            .config("spark.cores.max", "2")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", "2")
            .config("spark.local.dir", str(tmp_path_factory.mktemp("local")))
            .config("spark.archives", f"{cluster.archive}#coordinator")
            .config("spark.executorEnv.PYTHONPATH", "./coordinator")
            .getOrCreate()
        )
    from coordinator.spark.stream import ConsumerGroupSource

    session.dataSource.register(ConsumerGroupSource)
    yield session
    session.stop()
