"""`serve` as a process, killed, on what is left of its folder: one sentence, and an exit status."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from coordinator.storage.folder import DATABASE
from coordinator.testing import CannotStart
from tests.kit.serving import Process

DAMAGES = {
    "the database is gone": lambda folder: (folder / DATABASE).unlink(),
    "the database is empty": lambda folder: os.truncate(folder / DATABASE, 0),
    "the log is gone": lambda folder: (folder / f"{DATABASE}-wal").unlink(),
    "it is the share of another node": lambda folder: None,
}


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed") / "data"
    with Process("--data-dir", str(folder)) as server:
        server.kill()
    return folder


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused_in_a_sentence(killed, tmp_path, damage):
    folder = shutil.copytree(killed, tmp_path / "data")
    DAMAGES[damage](folder)
    flags = ("--share", "1/2") if "share" in damage else ()
    with Process("--data-dir", str(folder), *flags, wait=False) as server:
        assert server.wait() == 1
    assert server.lines[-1]["event"] == "cannot_start"
    assert str(folder) in server.lines[-1]["what"]
    assert "Traceback" not in server.other + str(server.lines)
    command = [sys.executable, "-m", "coordinator", "log", "verify", str(folder)]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    if not flags:
        assert said.returncode == 1
        assert said.stderr == f"coordinator: {server.lines[-1]['what']}\n"


def test_what_was_killed_is_served_again(killed, tmp_path):
    folder = shutil.copytree(killed, tmp_path / "data")
    with Process("--data-dir", str(folder)) as server:
        server.kill()


def test_a_share_is_not_served_without_its_flag(tmp_path):
    folder = tmp_path / "share-1-of-2"
    with Process("--data-dir", str(folder), "--share", "1/2") as server:
        server.kill()
    with Process("--data-dir", str(folder), wait=False) as server:
        assert server.wait() == 1
    assert "--nodes 2" in server.lines[-1]["what"]
    assert "--share 1/2" in server.lines[-1]["what"]


def test_a_folder_in_use_is_named_with_its_holder(tmp_path):
    with Process("--data-dir", str(tmp_path)):
        with pytest.raises(CannotStart, match="is in use by process"):
            Process("--data-dir", str(tmp_path))
