"""Views of the group: owners in a rebalance, the dead, the coordinator's log."""

import json
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from coordinator.assignors import TopicPartition
from coordinator.assignors.consumer_protocol import Assignment, encode_assignment
from flights.history import SIGSTOP, Kill, Moment
from flights.notes import TAKES, Notebook
from flights.watching import WOKEN, Watcher


class RecordedGroup:
    """Answers of a coordinator, one for each look."""

    def __init__(self, *answers):
        self._answers = iter(answers)

    def describe_group(self, group):
        state, members = next(self._answers)
        return SimpleNamespace(
            group_state=state,
            generation_id=1,
            members=[
                SimpleNamespace(
                    member_id=member_id,
                    client_id=member_id.rpartition("-")[0],
                    member_assignment=assigned(owned) if state == "Stable" else b"",
                )
                for member_id, owned in members.items()
            ],
        )

    def offsets(self, group):
        return {TopicPartition("flights", 0): 5, TopicPartition("other", 0): 7}


def assigned(partitions):
    return encode_assignment(
        Assignment(tuple(TopicPartition("flights", number) for number in partitions))
    )


@pytest.fixture
def watch(tmp_path):
    def begin(*answers):
        log = tmp_path / "coordinator.log"
        log.touch()
        return Watcher(RecordedGroup(*answers), "g", "flights", log, started=100.0, started_at=1e9)

    return begin


def owners(view):
    return {partition: member.label for partition, member in view.owners.items()}


def test_members_go_on_with_what_they_hold_while_the_group_rebalances(watch):
    both = {"a-1": [0], "b-1": [1]}
    watcher = watch(
        ("PreparingRebalance", both),
        ("Stable", both),
        ("PreparingRebalance", both),
        ("CompletingRebalance", {"a-1": []}),
        ("Stable", {"a-1": [0]}),
    )
    assert [owners(watcher.look()) for _ in range(5)] == [
        {},
        {0: "a", 1: "b"},
        {0: "a", 1: "b"},
        {0: "a"},
        {0: "a"},
    ]
    assert watcher.owners == ["a", "b"]


def test_one_that_was_killed_is_dead_until_it_is_removed_and_its_successor_is_another(watch):
    watcher = watch(
        ("Stable", {"a-1": [0], "b-1": [1]}),
        ("PreparingRebalance", {"a-1": [0], "a-2": [], "b-1": [1]}),
        ("Stable", {"a-2": [0], "b-1": [1]}),
    )
    watcher.look()
    watcher.note_kill("a", 3.0)
    rebalancing, after = watcher.look(), watcher.look()
    killed = {member_id: m.killed_at_s for member_id, m in rebalancing.members.items()}
    assert killed == {"a-1": 3.0, "a-2": None, "b-1": None}
    assert rebalancing.owners[0].killed_at_s == 3.0
    assert owners(after) == {0: "a (restarted)", 1: "b"}
    assert after.owning_clients() == after.clients() == {"a", "b"}
    assert after.offsets == {0: 5}


def test_one_that_was_stopped_and_woken_keeps_its_name(watch, tmp_path):
    watcher = watch(
        ("Stable", {"a-1": [0], "b-1": [1]}),
        ("Stable", {"b-1": [0, 1]}),
        ("Stable", {"a-2": [0], "b-1": [1]}),
    )
    watcher.look()
    watcher.note_kill("a", 3.0, SIGSTOP)
    watcher.look()
    watcher.now = lambda: 8.0
    watcher.note("a is woken", WOKEN, "a")
    watcher.note("a is refused")
    assert owners(watcher.look()) == {0: "a", 1: "b"}
    history = watcher.history(tmp_path, end_s=10.0)
    assert history.kills == (Kill("a", 3.0, None, SIGSTOP, woken_s=8.0),)
    assert history.moments == (Moment(8.0, "a is refused"),)


def test_events_have_the_times_of_the_coordinators_log_and_lines_are_read_once(watch):
    stable = ("Stable", {"a-1": [0]})
    watcher = watch(stable, stable, stable)
    watcher.look()
    line = json.dumps(
        {
            "event": "member_evicted",
            "client_id": "a",
            "cause": "session expired",
            "timestamp": datetime.fromtimestamp(1e9 + 7.5, UTC).isoformat().replace("+00:00", "Z"),
        }
    )
    with watcher.log.open("a") as log:
        log.write(line + "\n" + line[:9])
    watcher.look()
    watcher.look()
    assert [(h.at_s, h.text) for h in watcher.happenings] == [(7.5, "a removed: session expired")]


def test_the_history_has_the_workers_notes_the_kill_and_when_the_session_expired(watch, tmp_path):
    stable = ("Stable", {"a-1": [0], "b-1": [1]})
    watcher = watch(stable, stable)
    watcher.look()
    notes = tmp_path / "notes"
    Notebook(notes, "a").note(TAKES, [0], at_s=101.0)
    watcher.note_kill("a", 3.0)
    Notebook(notes, "b").note(TAKES, [0], at_s=107.0)
    events = (("member_evicted", 6), ("rebalance_started", 6), ("rebalance_started", 12))
    with watcher.log.open("a") as log:
        for event, at_s in events:
            at = datetime.fromtimestamp(1e9 + at_s, UTC).isoformat()
            entry = {"event": event, "client_id": "a", "cause": "session expired", "timestamp": at}
            log.write(json.dumps(entry) + "\n")
    watcher.look()
    history = watcher.history(notes, end_s=10.0)
    (kill,) = history.kills
    assert (kill.owner, kill.at_s, kill.expired_s) == ("a", 3.0, 6.0)
    assert history.rebalances == (6.0,), "those behind the end are not drawn"
    (rest,) = history.rests(kill)
    assert (rest.begin_s, rest.end_s, rest.taker) == (3.0, 7.0, "b")
