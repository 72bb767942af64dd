"""The run that the README's first picture shows can be recorded again."""

import os
import sys
from pathlib import Path

from flights.history import load
from tests.integration.operations.shell import Shell
from tests.kit.documents import ROOT
from tests.tools.test_pictures import check_workers

ENVIRONMENT = {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT}/deploy/spark"}


def test_a_run_of_the_readmes_worker_is_recorded(tmp_path: Path) -> None:
    recorded = tmp_path / "workers.json"
    with Shell(ROOT, ENVIRONMENT) as shell:
        status = shell.run(
            f"{sys.executable} -m tests.integration.clients.recorded_workers {recorded} --pause 0"
        )
        assert status == 0, shell.output()
    check_workers(load(recorded))
