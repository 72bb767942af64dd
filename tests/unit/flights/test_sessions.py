"""Spark's output is in a file, and an error at its start reaches the user."""

import contextlib
import os
import subprocess
import sys

import pytest

from flights.sessions import stderr_to


def test_standard_error_goes_to_the_file_inside_and_to_where_it_was_afterwards(tmp_path, capfd):
    log = tmp_path / "spark.log"
    log.write_text("before\n")
    with contextlib.suppress(LookupError), stderr_to(log):
        os.write(2, b"of Java\n")
        raise LookupError("Spark did not start")
    os.write(2, b"of ours\n")
    assert log.read_text() == "before\nof Java\n"
    assert capfd.readouterr().err == "of ours\n"


@pytest.mark.integration  # It starts processes.
def test_why_spark_does_not_start_is_told_with_the_name_of_the_log(tmp_path):
    pytest.importorskip("pyspark", reason="the flights need the extra `demo`")
    program = f"""
from pathlib import Path
from flights.sessions import start_spark
folder = Path({str(tmp_path)!r})
start_spark("local[1]", "test", folder, {{}}, folder / "spark.log")
"""
    without_java = {
        **os.environ,
        "JAVA_HOME": str(tmp_path / "nothing"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, env=without_java, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "nothing/bin/java: No such file or directory" in ended.stderr
    assert "Spark did not start" in ended.stderr
    assert str(tmp_path / "spark.log") in ended.stderr
    assert "Traceback" not in ended.stderr
