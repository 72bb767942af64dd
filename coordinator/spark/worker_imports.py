"""Classes that say what to do when the Python of a Spark worker cannot import this library.

Spark pickles classes of installed packages by name. Where the package is missing, unpickling fails
with `No module named 'coordinator'`, before any code of the package runs: neither the Python nor
the setting that chooses it is named. Without PYSPARK_PYTHON it is the `python3` that the driver or
an executor finds in its PATH, whichever Python runs the program. So what is pickled for these
classes is a function, by value, that imports the class.
"""

from __future__ import annotations

import copyreg
import platform
import sys
from abc import ABCMeta
from collections.abc import Callable
from typing import Any


class ImportedInWorkers(ABCMeta):
    """Metaclass of classes that Spark pickles, by themselves or with their instances."""


def _importer() -> Callable[[str, str, str], Any]:
    """The function that workers run; cloudpickle sends functions within functions by value."""

    def imported(module: str, name: str, driver: str) -> Any:  # Any: a class.
        import importlib
        import os
        import platform
        import sys
        from functools import reduce

        try:
            return reduce(getattr, name.split("."), importlib.import_module(module))
        except ImportError as error:
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"  # The worker reports this error and exits.
            raise ImportError(
                f"{sys.executable} (Python {platform.python_version()}), which Spark runs on "
                f"{platform.node()}, cannot import {module}: {error}. Set PYSPARK_PYTHON, where "
                "the driver or the Connect server is started, to a Python that has "
                "consumer-group-coordinator[spark], or ship the library to executors with "
                f"spark.archives. The program itself runs in {driver}"
            ) from None

    return imported


_IMPORTED = _importer()


def _reduced(cls: ImportedInWorkers) -> tuple[Any, ...]:
    program = f"{sys.executable} (Python {platform.python_version()})"
    return _IMPORTED, (cls.__module__, cls.__qualname__, program)


copyreg.pickle(ImportedInWorkers, _reduced)
