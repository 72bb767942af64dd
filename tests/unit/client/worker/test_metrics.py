"""Metrics of workers never stop one: several in threads, a new import, what the library refuses."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("prometheus_client", reason="workers do without it")

HEAD = """
import logging, os, sys, threading
logging.basicConfig(level=logging.WARNING)
sys.setswitchinterval(1e-6)
from coordinator.client.worker.core import WorkerCore
from coordinator.client.worker.handlers import Handlers
from coordinator.client.worker.handlers import Limits
"""
PROGRAMS = {
    "threads": """
        import coordinator.client.worker.state as metrics
        import prometheus_client
        made, start = [], threading.Barrier(8)
        def run():
            start.wait()
            made.append(metrics.WorkerMetrics.of("g"))
        threads = [threading.Thread(target=run) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(sum(one is not None for one in made))
    """,
    "imported anew": """
        made = []
        for _ in range(8):
            for name in [name for name in sys.modules if name.startswith("coordinator")]:
                del sys.modules[name]
            from coordinator.client.worker.state import WorkerMetrics
            made.append(WorkerMetrics.of("g"))
        print(sum(one is not None for one in made))
    """,
    "a metric of that name": """
        from prometheus_client import Gauge
        Gauge("coordinator_worker_partitions", "The program's own.")
        from coordinator.client.worker.state import WorkerMetrics
        print(WorkerMetrics.of("g"))
    """,
    "no folder": """
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = "/nowhere/at/all"
        from coordinator.client.worker.state import WorkerMetrics
        print(WorkerMetrics.of("g"))
    """,
    "a folder that goes": """
        import shutil, tempfile
        folder = os.environ["PROMETHEUS_MULTIPROC_DIR"] = tempfile.mkdtemp()
        from coordinator.client.worker.state import WorkerMetrics
        metrics, core = WorkerMetrics.of("g"), WorkerCore(Handlers(), Limits())
        assert metrics.update(core)
        shutil.rmtree(folder)
        metrics._events.labels = lambda *_: open(folder + "/gone")
        core.counts["runs"] = 1
        print(metrics.update(core))
    """,
}
TOLD = {
    "threads": ("8", ""),
    "imported anew": ("8", ""),
    "a metric of that name": ("None", "WARNING:coordinator.client:group g: its worker has no"),
    "no folder": ("None", "WARNING:coordinator.client:group g: its worker has no metrics"),
    "a folder that goes": ("False", "WARNING:coordinator.client:group g: its worker's metrics"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_a_process_of_its_own(name):
    program = HEAD + textwrap.dedent(PROGRAMS[name])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed, logged = TOLD[name]
    assert done.stdout.strip() == printed
    assert done.stderr.startswith(logged) if logged else done.stderr == ""
