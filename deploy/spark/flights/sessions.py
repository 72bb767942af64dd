"""Spark sessions of the demo: on the loopback, without a web page, and quiet."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def start_spark(master: str, name: str, scratch: Path, settings: Mapping[str, str]) -> Any:
    """A SparkSession.

    Args:
        scratch: where Spark keeps what it needs while it runs.
        settings: more of Spark's own.
    """
    # Executors would take the first python3 of the PATH, which has none of our packages.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName(name)
    ours = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(scratch),
        # It lives for a minute: what the second compiler costs does not come back.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    for key, value in {**ours, **settings}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark
