"""One Spark session for all tests, on a standalone cluster of two workers.

Executors run a Python that has nothing of ours: library and dependencies reach them in the
archive that `deploy/spark/pack` makes, as `deploy/spark/README.md` tells users to do it. Those of
the Connect server come and go, and each would unpack 500 MB: they unpack the library alone.
"""

from __future__ import annotations

import sys
import tarfile
from pathlib import Path

import pytest

from tests.integration.spark import standalone


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    with standalone.cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


def settings_of(cluster: standalone.Cluster, archive: Path, local: Path) -> dict[str, str]:
    """Settings of an application on the cluster; `deploy/spark/README.md` has the last two."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.executor.memory": "1g",
        "spark.executor.cores": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.local.dir": str(local),
        "spark.archives": f"{archive}#library",
        **({"spark.jars": str(standalone.JDBC_JAR)} if standalone.JDBC_JAR.exists() else {}),
        "spark.executorEnv.PYTHONPATH": "./library",
    }


@pytest.fixture(scope="session")
def spark(cluster, tmp_path_factory):
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        # Java keeps these when it is started, and other tests are spared them.
        # Of this machine, not of the environment that the tests run in.
        patch.setenv("PYSPARK_PYTHON", sys._base_executable)
        patch.setenv("PYTHONPATH", str(cluster.unpacked))
        for name in ("SPARK_LOCAL_IP", "SPARK_HOME"):
            patch.setenv(name, cluster.environment[name])
        session = (
            SparkSession.builder.master(cluster.master)
            .config("spark.cores.max", "2")
            .config(map=settings_of(cluster, cluster.archive, tmp_path_factory.mktemp("local")))
            .getOrCreate()
        )
    from coordinator.spark.stream import ConsumerGroupSource

    session.dataSource.register(ConsumerGroupSource)
    yield session
    session.stop()


ELASTIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": "1",
    # One for each attempt at a slot, and one for a query's tasks.
    "spark.dynamicAllocation.maxExecutors": "3",
    # Longer than from one test to the next: a JVM takes longer to begin than a query to run.
    "spark.dynamicAllocation.executorIdleTimeout": "10s",
    # Else an executor with the shuffle of a finished query stays until the driver collects garbage.
    "spark.dynamicAllocation.shuffleTracking.timeout": "10s",
    "spark.decommission.enabled": "true",
    "spark.executor.decommission.forceKillTimeout": "1s",
    "spark.speculation": "true",
    "spark.speculation.interval": "200ms",
    # Counts for stages with one task, which has no other to be compared with.
    "spark.speculation.task.duration.threshold": "4s",
}


@pytest.fixture(scope="session")
def connect_url(cluster, tmp_path_factory):
    """Address of a Connect server on the same cluster, whose executors come and go."""
    folder = tmp_path_factory.mktemp("connect")
    archive = folder / "coordinator.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(cluster.unpacked / "coordinator", "coordinator")
    settings = {
        **settings_of(cluster, archive, tmp_path_factory.mktemp("connect-local")),
        **ELASTIC,
        # As the page on Connect has it: workers of its sessions start in a folder below.
        "spark.executorEnv.PYTHONPATH": f"./library:../library:{cluster.unpacked}",
    }
    with standalone.connect_server(cluster, folder, settings) as url:
        yield url


@pytest.fixture(scope="session")
def connect(connect_url):
    """A client's session of the Connect server."""
    from pyspark.sql.connect.session import SparkSession

    from coordinator.spark.stream import ConsumerGroupSource

    # From its own module, since a classic session may run in this process too.
    session = SparkSession.builder.remote(connect_url).create()
    session.dataSource.register(ConsumerGroupSource)
    yield session
    session.stop()


@pytest.fixture(scope="module")
def travels_by_value(request):
    """Modules whose functions run where the folder of the tests is not."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)
