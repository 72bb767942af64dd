"""Log lines, as people and machines read them."""

import json
import logging
import math
from dataclasses import fields, replace
from enum import Enum
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import pytest
import structlog

from coordinator.core.values.events import Event, RebalanceCause, RebalanceJournaled
from coordinator.core.values.plan_journal import PlanRecord
from coordinator.core.values.rebalance_journal import (
    RebalanceMember,
    RebalanceRecord,
    RemovedMember,
)
from coordinator.core.values.records import PartitionSwitched, PhaseEntered
from coordinator.observe.logs import EventLog, configure, event_name
from tests.unit.observe.test_session_metrics import PLAN, SWITCH

HARM = "a\x1b[2J\nroot# \u202e\x9b\0"


@pytest.fixture
def stderr(capsys):
    """Text written to standard error since the last call."""
    yield lambda: capsys.readouterr().err
    structlog.reset_defaults()
    logging.basicConfig(handlers=[], force=True)


def say(logger) -> None:
    logger.warning("access_refused", group=HARM, names=(HARM,))
    try:
        raise ValueError(HARM)
    except ValueError:
        logger.exception("problem", what=HARM)
    logging.getLogger("library").error("it said %s", HARM)


def test_what_clients_send_does_nothing_to_a_terminal(stderr):
    say(configure("console", "info"))
    said = stderr()
    assert [char for char in said if not (char.isprintable() or char == "\n")] == []
    assert said.count("\\x1b[2J") >= 5
    assert said.count("\nroot#") <= 1  # A traceback is lines.


def test_lines_for_machines_have_it_as_it_was(stderr):
    say(configure("json", "info"))
    said = stderr()
    refused, problem, library = map(json.loads, said.splitlines())
    assert refused["group"] == problem["what"] == HARM
    assert library["event"] == f"it said {HARM}"
    assert "\x1b" not in said


MEMBERS = tuple(
    RebalanceMember(f"m{number}", "c", "/h", False, 9_000, 1_100, 3_100) for number in range(500)
)
RECORD = RebalanceRecord(
    "g", "session expired", "completed", "m1", "c", "/h", "", 6, 7, "range", False,
    started_at_ms=1_000, joined_at_ms=3_000, synced_at_ms=3_200, ended_at_ms=3_250,
    leader="m0", member_count=500, members=MEMBERS,
    removed=(RemovedMember("m1", "c", "/h", "session expired"),), partitions_moved=3,
    unowned_partitions=2, unowned_ms_max=2_250, unowned_ms_total=4_500,
)  # fmt: skip


def parsed(text: str) -> list[dict]:
    def refuse(constant: str):
        raise ValueError(f"JSON has no {constant}")

    return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]


def logged(stderr, *events: Event) -> list[dict]:
    EventLog(configure("json", "debug"))(events, 0)
    return parsed(stderr())


def an_event(kind: type) -> Event:
    values = {str: HARM, int: 3, bool: True, RebalanceRecord: RECORD}
    values |= {PlanRecord: PLAN, PartitionSwitched | PhaseEntered: SWITCH}
    hints = get_type_hints(kind)
    return kind(*(
        () if get_origin(hint) is tuple
        else next(iter(hint)) if isinstance(hint, type) and issubclass(hint, Enum)
        else values[hint]
        for hint in (hints[field.name] for field in fields(kind))
    ))  # fmt: skip


@pytest.mark.parametrize("kind", get_args(Event))
def test_every_event_is_a_line_of_json_with_typed_values(stderr, kind):
    event = an_event(kind)
    (line,) = logged(stderr, event)
    assert line["event"] == event_name(event)
    if hasattr(event, "record"):
        return  # Below, and in test_session_metrics.py.
    for field in fields(event):
        name = {"group_id": "group", "member_id": "member"}.get(field.name, field.name)
        value = getattr(event, field.name)
        if value == ():
            assert name not in line, "lists are for the journal"
            continue
        assert line[name] == (value.value if isinstance(value, Enum) else value)
        assert type(line[name]) in (str, int, bool)


def test_a_rebalance_is_a_short_line_of_numbers(stderr):
    (line,) = logged(stderr, RebalanceJournaled(RECORD))
    del line["timestamp"]
    assert line == {
        "event": "rebalance_journaled", "level": "info", "group": "g", "cause": "session expired",
        "member": "m1", "outcome": "completed", "generation": 7, "members": 500, "removed": 1,
        "join_ms": 2_000, "sync_ms": 200, "durable_ms": 50, "took_ms": 2_250, "moved": 3,
        "unowned": 2, "unowned_ms": 2_250,
    }  # fmt: skip


def test_a_rebalance_that_was_interrupted_has_the_phases_that_it_had(stderr):
    ended = {"joined_at_ms": -1, "synced_at_ms": -1, "partitions_moved": -1}
    record = replace(RECORD, outcome="interrupted", **ended)
    (line,) = logged(stderr, RebalanceJournaled(record))
    assert not {"join_ms", "sync_ms", "durable_ms", "moved"} & set(line)
    assert line["took_ms"] == 2_250


def test_a_rebalance_fits_a_terminal(stderr):
    EventLog(configure("console", "info"))([RebalanceJournaled(RECORD)], 0)
    (line,) = stderr().splitlines()
    assert len(line) < 400
    assert "RebalanceRecord" not in line
    assert "took_ms=2250" in line


def test_values_that_json_does_not_have_become_texts(stderr):
    logger = configure("json", "info")
    values = {
        "number": math.inf, "path": Path("/x"), "error": ValueError("why"), "several": {"a"},
        "causes": ("one", RebalanceCause.MEMBER_JOINED), "by": {1: b"x"},
    }  # fmt: skip
    logger.info("odd", **values)
    (line,) = parsed(stderr())
    found = {name: line[name] for name in values}
    assert found == {
        "number": "inf", "path": "/x", "error": "why", "several": ["a"],
        "causes": ["one", "member joined"], "by": {"1": "x"},
    }  # fmt: skip
