"""The tutorial on Spark works as it is printed, from `pip install` on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="Spark needs the extra `spark`")
pytest.importorskip("deltalake", reason="the tutorial writes a Delta table")

from tests.integration.operations.shell import Shell, clone_this
from tests.kit.documents import ROOT, blocks, commands

pytestmark = pytest.mark.alone

PAGE = ROOT / "deploy/docs/tutorial-spark.md"
ENVIRONMENT = {
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    # The wheel is built by the packages that are here: the shell has no network.
    "PIP_NO_BUILD_ISOLATION": "0",
    "PYTHONPATH": "",
}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return clone_this(tmp_path / "clone")


@pytest.fixture
def shell(clone: Path) -> Iterator[Shell]:
    with Shell(clone, ENVIRONMENT, has_jobs=True) as shell:
        yield shell


def link_packages(clone: Path) -> None:
    """Have pip find what is installed here, so that it installs the library alone."""
    (packages,) = clone.glob(".venv/lib/python*/site-packages")
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "shared.pth").write_text("\n".join(others) + "\n")


def test_the_tutorial_on_spark_works_as_printed(shell, clone):
    for block in blocks(PAGE):
        if block.name:
            (clone / "tutorial" / block.name).write_text(block.text)
            continue
        for command in commands(block.text):
            shell.check(command)
            if " -m venv " in command.text:
                link_packages(clone)
    assert "Traceback" not in shell.output()
