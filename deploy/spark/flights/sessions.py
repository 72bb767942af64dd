"""Spark sessions of the demo: on the loopback, without a web page, their output in a file."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties").as_uri()
LINES_SHOWN = 15


def start_spark(
    master: str,
    name: str,
    scratch: Path,
    settings: Mapping[str, str],
    log: Path | None = None,
) -> Any:
    """Start a SparkSession.

    Args:
        scratch: folder for Spark's temporary files.
        settings: further settings of Spark.
        log: file for what Java and Spark write to standard error; None: ours.
    Raises:
        SystemExit: Spark did not start.
    """
    # The default is the first python3 of the PATH, which lacks our packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    # Not the setting spark.local.dir, of which Spark warns that a cluster may override it.
    os.environ["SPARK_LOCAL_DIRS"] = str(scratch)
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(name)
    log_option = f"-Dlog4j2.configurationFile={LOG_SETTINGS}"
    ours = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # The JVM runs for a minute only, so the optimising compiler does not pay off.
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {log_option}",
        "spark.executor.extraJavaOptions": log_option,
    }
    for key, value in {**ours, **settings}.items():
        builder = builder.config(key, value)
    try:
        with stderr_to(log) if log else contextlib.nullcontext():
            return builder.getOrCreate()
    except PySparkException as error:
        last = log.read_text(errors="replace").splitlines()[-LINES_SHOWN:] if log else []
        where = f" All of it: {log}" if log else ""
        raise SystemExit("\n".join([*last, f"Spark did not start: {error}{where}"])) from error


@contextlib.contextmanager
def stderr_to(path: Path) -> Iterator[None]:
    """Lead standard error to a file inside; processes that are started inside keep it for good."""
    sys.stderr.flush()
    before = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)


def stop_spark(spark: Any, folder: Path) -> None:
    """Stop a session with a `local-cluster`, and move its executors' output to `folder`.

    Spark puts it below its own installation, and has no setting for another place.
    """
    import pyspark

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    work = home / "work" / spark.sparkContext.applicationId
    spark.stop()
    if work.is_dir():
        shutil.move(work, folder)
