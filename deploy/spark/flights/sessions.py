"""Spark sessions of the demo: on the loopback, without a web page, and quiet."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def start_spark(master: str, name: str, scratch: Path, settings: Mapping[str, str]) -> Any:
    """Start a SparkSession.

    Args:
        scratch: folder for Spark's temporary files.
        settings: further settings of Spark.
    """
    # The default is the first python3 of the PATH, which lacks our packages.
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
        # The JVM runs for a minute only, so the optimising compiler does not pay off.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    for key, value in {**ours, **settings}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark
