"""Recordings of earlier versions are run to the journal that they gave when they were made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coordinator.cli.main import main
from coordinator.core.commands import LeavingMember, PartitionCommit
from coordinator.core.pauses import Pause
from coordinator.runtime import inputs
from coordinator.runtime.replaying import replay

RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.jsonl"))
KILLED = "leader_killed"


def lines(path: Path) -> list[dict]:
    return [json.loads(text) for text in path.read_text().splitlines()]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_replay_prints_the_journal_that_was_printed_then(path, capsys):
    status = main(["replay", str(path), "-o", "json"])
    told = capsys.readouterr()
    assert json.loads(told.out) == json.loads(path.with_suffix(".json").read_text())
    assert told.err.endswith(": the same state\n")
    assert status == (1 if path.stem == KILLED else 0), "1: no state was compared"


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_every_recorded_state_comes_out_again(path):
    with path.open() as recording:
        found = replay(recording)
    recorded = lines(path)
    assert found.differences == []
    assert found.inputs == sum("in" in line for line in recorded)
    assert found.checked == sum("hash" in line for line in recorded)
    assert (found.checked == 0) == (path.stem == KILLED)


def test_every_kind_of_input_is_in_a_recording():
    recorded = {
        next(iter(line["in"])) for path in RECORDINGS for line in lines(path) if "in" in line
    }
    parts = {kind.__name__ for kind in (LeavingMember, PartitionCommit, Pause)}
    assert recorded == set(inputs._KINDS) - parts
