"""A Spark driver with one streaming query, which is started again whenever it fails.

    python -m tests.campaigns.faults.spark.driver JSON        see `Settings`

Lines on standard input: `kill-task` fails a running task; the end of the input stops it.
A plain sink gets each row with who wrote it, so that a judge can tell who did what twice.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import uuid
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from coordinator.spark import streaming
from coordinator.spark.exactly_once import ExactlyOnce
from tests.kit.sinks import GROUP, Place

PLAIN = "plain"


@dataclass(frozen=True)
class Settings:
    """`folder` is shared by all drivers of a run; `sink` is plain, or a kind of `tests.kit.sinks`.

    library: folder of the library and what it needs.
    by_spark: Spark reads the files, not a source in Python.
    """

    name: str
    folder: str
    master: str
    library: str
    source: str
    coordinator: str
    sink: str
    protocol: str
    rows_per_batch: int
    session_timeout_ms: int
    static: bool
    by_spark: bool
    topic: str = "flights"


def main() -> None:
    settings = Settings(**json.loads(sys.argv[1]))
    spark = _make_spark(settings)
    folder = Path(settings.folder)
    (folder / f"app-{settings.name}").write_text(spark.sparkContext.applicationId)
    threading.Thread(target=_obey, args=(spark,), daemon=True).start()
    while True:
        query = _start(spark, settings, folder)
        try:
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001  # Whatever killed it: it is started again.
            print(f"{settings.name}: {str(error)[:300]}", file=sys.stderr, flush=True)
            time.sleep(0.5)


def _make_spark(settings: Settings):
    from pyspark.sql import SparkSession

    from coordinator.spark.stream import ConsumerGroupSource

    spark = (
        SparkSession.builder.master(settings.master)
        .appName(settings.name)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "700m")
        .config("spark.executor.memory", "500m")
        .config("spark.cores.max", "1")
        .config("spark.executor.cores", "1")
        .config("spark.task.maxFailures", "8")
        .config("spark.deploy.maxExecutorRetries", "-1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.local.dir", f"{settings.folder}/local-{settings.name}")
        # Not an archive: executors come and go, and each would unpack 500 MB.
        .config("spark.executorEnv.PYTHONPATH", settings.library)
        .getOrCreate()
    )
    spark.dataSource.register(ConsumerGroupSource)
    return spark


def _start(spark, settings: Settings, folder: Path):
    checkpoint = str(folder / f"checkpoint-{settings.name}")
    options = {
        "coordinator": settings.coordinator,
        "group": GROUP,
        "protocol": settings.protocol,
        "source": settings.source,
        "topic": settings.topic,
        "maxRowsPerBatch": str(settings.rows_per_batch),
        "sessionTimeoutMs": str(settings.session_timeout_ms),
    }
    if settings.static:
        options["instance"] = settings.name
    write = _batch_writer(settings, folder, f"{settings.name}-{uuid.uuid4().hex[:8]}")
    if settings.by_spark:
        stream = streaming(spark, **options).foreach_batch(write)
    else:
        rows = spark.readStream.format("consumer_group").options(**options).load()
        stream = rows.writeStream.foreachBatch(write)
    stream = stream.option("checkpointLocation", checkpoint)
    return stream.trigger(processingTime="0 seconds").start()


def _batch_writer(settings: Settings, folder: Path, run: str):
    if settings.sink == PLAIN:
        return partial(_write_plainly, folder, run)
    exact = ExactlyOnce(Place(settings.sink, str(folder)).sink())
    done = 0

    def write(rows, batch_id: int) -> None:
        nonlocal done
        before = exact.refused
        exact(rows.selectExpr("partition AS p", "row AS n", "carrier", "tailnum"), batch_id)
        if exact.refused > before:
            # The first batch after a start may be one that this driver had done itself.
            what = "again" if done == 0 else "zombie"
            with (folder / "refused").open("a") as file:
                file.write(f"{what} {run} {batch_id}\n")
        done += 1

    return write


def _write_plainly(folder: Path, run: str, rows, batch_id: int) -> None:
    from pyspark.sql.functions import lit

    signed = rows.withColumn("run", lit(run)).withColumn("batch", lit(batch_id))
    signed.write.parquet(str(folder / "data" / f"{batch_id:09}-{run}-{uuid.uuid4().hex}"))


def _obey(spark) -> None:
    for line in sys.stdin:
        if line.strip() == "kill-task":
            _kill_task(spark)
    spark.stop()


def _kill_task(spark) -> None:
    """Have Spark fail one task that is running now, if there is one."""
    context = spark.sparkContext
    scala = context._jsc.sc()
    for stage in context.statusTracker().getActiveStageIds():
        tasks = scala.statusStore().taskList(stage, 0, 100)
        for index in range(tasks.size()):
            task = tasks.apply(index)
            if task.status() == "RUNNING":
                scala.killTaskAttempt(task.taskId(), True, "on purpose")
                return


if __name__ == "__main__":
    main()
