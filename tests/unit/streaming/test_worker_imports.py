"""A Python without this library says what to do with what Spark sends it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="what Spark pickles needs the extra `spark`")

import pyspark
from pyspark import cloudpickle

from coordinator.spark.exactly_once import ExactlyOnce
from coordinator.spark.executor import _Handling
from coordinator.spark.sinks.staging import _StagingTask
from coordinator.spark.stream import (
    ConsumerGroupSource,
    GroupStreamReader,
    RangePartition,
)
from coordinator.spark.worker_imports import ImportedInWorkers

# Workers begin with Spark's own libraries in their path, and have nothing else here.
LIBRARIES = [str(path) for path in Path(pyspark.__file__).parent.glob("python/lib/*.zip")]
WORKER = f"""
import sys
sys.path[:0] = {LIBRARIES}
import pickle
try:
    pickle.load(sys.stdin.buffer)
except ImportError as error:
    print(error)
"""


def in_bare_worker(sent: bytes) -> str:
    command = [sys._base_executable, "-I", "-S", "-c", WORKER]
    done = subprocess.run(command, input=sent, capture_output=True, check=True)
    return done.stdout.decode()


def test_a_class_and_an_instance_come_back_where_the_library_is():
    assert cloudpickle.loads(cloudpickle.dumps(ConsumerGroupSource)) is ConsumerGroupSource
    handling = cloudpickle.loads(cloudpickle.dumps(_Handling(print)))
    assert type(handling) is _Handling


def test_a_python_without_the_library_is_named_and_so_is_the_setting_that_chooses_it():
    told = in_bare_worker(cloudpickle.dumps(ConsumerGroupSource))
    assert sys._base_executable in told
    assert "cannot import coordinator.spark.stream: No module named 'coordinator'" in told
    assert "Set PYSPARK_PYTHON" in told
    assert f"The program itself runs in {sys.executable}" in told


@pytest.mark.parametrize("kind", [RangePartition, GroupStreamReader, ExactlyOnce, _StagingTask])
def test_whatever_comes_first_to_a_worker_says_so(kind):
    assert isinstance(kind, ImportedInWorkers)


def test_a_users_class_in_the_main_module_travels_by_value():
    class Mine(ConsumerGroupSource):
        pass

    assert cloudpickle.loads(cloudpickle.dumps(Mine)).name() == "consumer_group"


def test_no_name_of_the_package_is_that_of_one_of_its_modules():
    """Else it would be the module, once anybody has imported that."""
    import pkgutil

    import coordinator.spark as package

    modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert not modules & set(package.__all__)
    assert all(callable(getattr(package, name)) for name in package.__all__)
