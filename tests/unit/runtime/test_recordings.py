"""Recordings are run to the state that they were in when they were made."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from coordinator import __version__
from coordinator.cli.main import main
from coordinator.core.config import GroupConfig
from coordinator.core.group import GroupState
from coordinator.core.pauses import Pause
from coordinator.core.sessions.plan import scheduler
from coordinator.core.values.events import RebalanceJournaled
from coordinator.core.values.ids import ShardId
from coordinator.core.values.plans import Move, MoveReason, Obstacle, Plan, Unplaced
from coordinator.core.values.policy import Policy
from coordinator.core.values.requests import LeavingMember, PartitionCommit, PutDocument
from coordinator.core.values.session_messages import PartitionAck
from coordinator.runtime import inputs
from coordinator.runtime.payloads import PAYLOADS
from coordinator.runtime.recording import RecordingShard
from coordinator.runtime.replaying import NoRecording, replay
from coordinator.shard.followers import AckPolicy
from coordinator.shard.inputs import Unload
from coordinator.shard.shard import Shard
from coordinator.testing.virtual import CountingIds
from tests.kit import requests
from tests.kit.steps import stepped
from tests.unit.runtime import session_story
from tests.unit.runtime.session_story import Recorded

RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.jsonl"))
KILLED = "leader_killed"
STORY = RECORDINGS[0].with_name("single_node.jsonl")


def lines(path: Path) -> list[dict]:
    return [json.loads(text) for text in path.read_text().splitlines()]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_replay_prints_the_journal_that_was_printed_then(path, capsys):
    status = main(["replay", str(path), "-o", "json"])
    output = capsys.readouterr()
    rebalances = json.loads(output.out)
    printed = json.loads(path.with_suffix(".json").read_text())
    assert [(r["group"], str(r["generation"]), r["cause"], r["outcome"]) for r in rebalances] == [
        (r["GROUP"], r["GENERATION"], r["CAUSE"], r["OUTCOME"]) for r in printed
    ]
    for rebalance, before in zip(rebalances, printed, strict=True):
        assert before["EXPLANATION"].startswith(rebalance["explanation"][0]), "with these times"
    assert output.err.endswith(": the same state\n")
    assert status == (1 if path.stem == KILLED else 0), "1: no state was compared"


def test_replay_prints_a_table_and_differences_first(tmp_path, capsys):
    assert main(["replay", str(STORY)]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == [
        "GROUP", "GENERATION", "CAUSE", "OUTCOME", "TOOK", "MOVED", "NOT-WORKED-ON",
    ]  # fmt: skip
    assert len(table) == 7
    recorded = lines(STORY)
    for line in recorded:
        if "hash" in line:
            line["hash"] = "another"
    changed = tmp_path / "recording"
    changed.write_text(text_of(recorded))
    assert main(["replay", str(changed)]) == 1
    output = capsys.readouterr()
    count = sum("hash" in line for line in recorded)
    assert output.out.splitlines()[0].startswith("Difference: the state differs after ")
    assert output.out.splitlines()[count:] == table
    assert main(["replay", str(changed), "-o", "json"]) == 1
    output = capsys.readouterr()
    assert len(json.loads(output.out)) == 6
    assert "the state differs after " in output.err


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_every_recorded_state_comes_out_again(path):
    with path.open() as recording:
        replayed = replay(recording)
    recorded = lines(path)
    assert replayed.differences == []
    assert replayed.inputs == sum("in" in line or "beat" in line for line in recorded)
    assert replayed.checked == sum("hash" in line for line in recorded)
    assert (replayed.checked == 0) == (path.stem == KILLED)


@pytest.fixture
def planned_outside(monkeypatch):
    """Have the plans of the story made outside of the shard, as those of large groups are."""
    monkeypatch.setattr(scheduler, "PLANNED_AT_ONCE", 5)


@pytest.mark.usefixtures("planned_outside")
def test_every_kind_of_input_is_in_a_recording(tmp_path):
    session_story.record(tmp_path / "sessions")
    recorded = {
        next(iter(line["in"]))
        for path in (*RECORDINGS, tmp_path / "sessions")
        for line in lines(path)
        if "in" in line
    }
    nested = (
        LeavingMember,
        PartitionCommit,
        PutDocument,
        Pause,
        PartitionAck,
        Policy,
        inputs.RecordedPlan,
    )
    assert recorded == set(inputs._KINDS) - {kind.__name__ for kind in nested}


# --- Session groups ---------------------------------------------------------------------------


def test_a_story_of_session_members_is_replayed_to_the_same_state(tmp_path):
    path = tmp_path / "sessions"
    session_story.record(path)
    recorded = lines(path)
    replayed = replay(path.read_text().splitlines())
    assert (replayed.checked, replayed.differences) == (8, [])
    assert replayed.inputs == sum("in" in line for line in recorded)
    handed_over = [line for line in recorded if "PartitionAck" in json.dumps(line)]
    assert len(handed_over) > 10, "a story without hand-offs shows little"


@pytest.mark.usefixtures("planned_outside")
def test_plans_that_were_made_outside_are_replayed(tmp_path):
    path = tmp_path / "sessions"
    session_story.record(path)
    recorded = lines(path)
    replayed = replay(path.read_text().splitlines())
    assert (replayed.checked, replayed.differences) == (8, [])
    plans = [line["in"]["PlanComputed"] for line in recorded if "PlanComputed" in str(line)]
    assert any(plan["plan"]["RecordedPlan"]["moves"] for plan in plans)
    without = [line for line in recorded if "PlanComputed" not in str(line)]
    assert replay(text_of(without).splitlines()).differences


def test_all_of_a_plan_is_recorded():
    made = Plan(
        {1: {0: ((0, 2), (4, 4))}},
        (Move(0, 5, 0, 1, MoveReason.BALANCE),),
        {(0, 6): Unplaced.CAPACITY},
        (Obstacle((1,), (0, 2), (0, 5)), Obstacle((0, 2), (3,))),
    )
    assert inputs.from_json(json.loads(json.dumps(inputs.to_json(made)))) == made


def test_what_a_member_has_been_told_counts_in_a_replay(tmp_path):
    path = tmp_path / "sessions"
    session_story.record(path)
    told = [text for text in path.read_text().splitlines() if '"take"' not in text]
    assert "the state differs after" in replay(told).differences[0]
    recorded = lines(path)
    first = next(line for line in recorded if "take" in line)
    first["take"] = 999
    told = replay(text_of(recorded).splitlines())
    assert told.differences[0].startswith("there is nothing to tell after ")


# --- Heartbeats that are no steps -------------------------------------------------------------


def record_heartbeats(path: Path) -> Recorded:
    """A member alone lives for three times its session, by heartbeats that are no steps."""
    c = Recorded(path, group_initial_rebalance_delay_ms=0)
    joining = requests.join(session_timeout_ms=6_000, rebalance_timeout_ms=6_000, protocol_type="t")
    member = c.send(joining)
    c.advance(1)
    member_id = member.response.member_id
    c.send(requests.sync(member.response, assignments={member_id: b""}))
    for _ in range(9):
        c.advance(2_000)
        assert c.shard.beat("g", member_id, None, 1, c.now_ms)
    assert not c.shard.beat("g", member_id, None, 0, c.now_ms)
    assert c.shard.beat("g", member_id, None, 1, c.now_ms)
    assert c.state("g") is GroupState.STABLE
    c.advance(6_001)
    assert c.state("g") is GroupState.EMPTY
    stepped(c.shard, Unload(), c.now_ms)
    return c


def test_a_recording_has_the_heartbeats_that_are_no_steps(tmp_path):
    path = tmp_path / "recording"
    c = record_heartbeats(path)
    recorded = lines(path)
    assert sum("beat" in line for line in recorded) == 10
    replayed = replay(path.read_text().splitlines())
    assert (replayed.checked, replayed.differences) == (1, [])
    assert replayed.inputs == sum("in" in line or "beat" in line for line in recorded)
    assert replayed.rebalances == [
        e.record for _, e in c.events if isinstance(e, RebalanceJournaled)
    ]
    ended_at = replayed.rebalances[-1].ended_at_ms
    without = [text for text in path.read_text().splitlines() if '"beat"' not in text]
    assert replay(without).rebalances[-1].ended_at_ms < ended_at, "its session ends earlier"


def test_a_heartbeat_that_is_missing_is_a_difference(tmp_path):
    """The state is the same without it: a later one has come."""
    path = tmp_path / "recording"
    record_heartbeats(path)
    recorded = lines(path)
    beats = [number for number, line in enumerate(recorded) if "beat" in line]
    del recorded[beats[3]]
    (difference,) = replay(text_of(recorded).splitlines()).differences
    assert difference.startswith("1 inputs are missing before the state after ")


def test_a_heartbeat_that_would_be_a_step_now_is_a_difference(tmp_path):
    path = tmp_path / "recording"
    record_heartbeats(path)
    recorded = lines(path)
    next(line for line in recorded if "beat" in line)["beat"][3] = 7
    assert (
        "is no heartbeat of a member at rest"
        in replay(text_of(recorded).splitlines()).differences[0]
    )


def test_a_heartbeat_that_fails_is_recorded(tmp_path, monkeypatch):
    c = Recorded(tmp_path / "recording")
    monkeypatch.setattr(Shard, "beat", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        c.shard.beat("g", "m", None, 1, 0)
    assert lines(tmp_path / "recording")[-1] == {"beat": ["g", "m", None, 1], "now_ms": 0}


# --- What cannot be read, or not whole --------------------------------------------------------


def text_of(recorded: list[dict]) -> str:
    return "".join(json.dumps(line) + "\n" for line in recorded)


def complaint(path: Path, capsys) -> str:
    """Message of `coordinator replay` about a file that it cannot run: one line."""
    assert main(["replay", str(path)]) == 1
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith(f"coordinator: {path}: ")
    assert output.err.count("\n") == 1
    return output.err


def refusal(recorded: list[dict]) -> str:
    return refusal_of(text_of(recorded))


def refusal_of(text: str) -> str:
    with pytest.raises(NoRecording) as refused:
        replay(text.splitlines())
    return str(refused.value)


def test_a_recording_that_was_cut_is_run_up_to_there():
    text = STORY.with_name("restarted_node.jsonl").read_text()
    whole = replay(text.splitlines())
    after_header = text.index("\n")
    ends = [n for n, character in enumerate(text) if character == "\n" and n > after_header]
    for cut in (after_header, *(end - short for end in ends for short in (1, 0))):
        replayed = replay(text[:cut].splitlines())
        assert replayed.differences == []
        assert replayed.rebalances == whole.rebalances[: len(replayed.rebalances)]
        assert replayed.inputs <= whole.inputs
    assert (replayed.inputs, replayed.rebalances) == (whole.inputs, whole.rebalances)


def test_a_recording_without_its_first_line_is_none():
    assert "its first line is cut short" in refusal_of(STORY.read_text()[:40])


def test_a_line_that_is_damaged_in_the_middle_is_named():
    text = STORY.read_text().splitlines()
    text[29] = text[29][:-1]
    assert refusal_of("\n".join(text)) == "line 30 is damaged"


def test_another_format_is_named_with_the_version_that_wrote_it():
    recorded = lines(STORY)
    recorded[0] |= {"format": 2, "version": "9.1.0"}
    ours = f"version {__version__} reads format 1"
    assert refusal(recorded) == f"version 9.1.0 recorded in format 2; {ours}"
    del recorded[0]["version"]
    assert refusal(recorded) == f"an unnamed version recorded in format 2; {ours}"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ({"in": {"Teleport": {"group_id": "g"}}}, "there is no input 'Teleport'"),
        ({"in": {"Tick": {"pauses": [], "mood": 1}}}, "Tick has no field 'mood'"),
        ({"in": {"enum": ["AppendFailure", "MELTED"]}}, "there is no 'AppendFailure' 'MELTED'"),
        ({"beat": ["g", "m", None]}, "['g', 'm', None] is no heartbeat"),
        ({"beat": 3}, "'int' object is not iterable"),
        ({"weather": "fine"}, "{'weather': 'fine', 'now_ms':"),
    ],
)
def test_what_a_newer_version_wrote_is_named_with_that_version(line, what):
    recorded = lines(STORY)
    recorded[0]["version"] = "9.1.0"
    recorded.insert(20, {**line, "now_ms": recorded[-1]["now_ms"]})
    message = refusal(recorded)
    assert message.startswith("version 9.1.0 wrote ")
    assert f" that version {__version__} does not read: " in message.replace(" what ", " that ")
    assert what in message


def test_a_setting_of_a_newer_version_is_named_with_that_version():
    recorded = lines(STORY)
    recorded[0]["version"] = "9.1.0"
    recorded[0]["config"]["group_mood"] = 3
    expected = "GroupConfig has no field 'group_mood'"
    assert (
        refusal(recorded)
        == f"version 9.1.0 wrote what version {__version__} does not read: {expected}"
    )


def test_a_recording_says_which_version_made_it(tmp_path):
    path = tmp_path / "recording"
    RecordingShard(
        path, ShardId(0), GroupConfig(), CountingIds(), PAYLOADS, now_ms=0, acks=AckPolicy()
    )
    (header,) = lines(path)
    assert (header["format"], header["version"]) == (1, __version__)


def test_files_that_are_no_recordings_are_refused_in_a_sentence(tmp_path, capsys):
    path = tmp_path / "file"
    assert "No such file" in complaint(path, capsys)
    path.write_bytes(b"")
    assert "it is empty" in complaint(path, capsys)
    path.write_bytes(gzip.compress(STORY.read_bytes()))
    assert "line 1 is damaged" in complaint(path, capsys)
    path.write_text('{"hash": "", "inputs": 0}\n')
    assert "the first line does not say what it is" in complaint(path, capsys)
    assert "Is a directory" in complaint(tmp_path, capsys)
