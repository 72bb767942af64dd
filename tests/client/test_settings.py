"""Settings of members as their callers write them."""

from __future__ import annotations

import pytest

from coordinator.client import BlockingMember, GroupMember, OffsetAndMetadata, SessionMember, Worker
from coordinator.client.forms import offsets_of
from coordinator.client.member.session.settings import session_config
from coordinator.client.settings import member_config, remarks

BOTH = pytest.mark.parametrize("kind", [GroupMember, BlockingMember])


@BOTH
@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("sesion_timeout_ms", "session_timeout_ms"),
        ("session_timeout_s", "session_timeout_ms"),
        ("assignor", "assignors"),
        ("group_instance_id", "instance_id"),
        ("max_poll_interval", "max_poll_interval_ms"),
        ("credential", "credentials"),
    ],
)
def test_an_unknown_setting_is_refused_where_the_member_is_made_with_the_nearest_name(
    kind, wrong, near
):
    with pytest.raises(TypeError, match=rf"no setting '{wrong}'; did you mean {near}\?"):
        kind("localhost:7400", "g", {"t": 1}, **{wrong: 1})


@BOTH
def test_a_setting_like_no_other_is_refused_with_all_names(kind):
    with pytest.raises(TypeError, match="there are assignors, fallback_assignor, client_id"):
        kind("localhost:7400", "g", {"t": 1}, zzz=1)


def remarked(**settings) -> list[str]:
    config = member_config("g", {"t": 1}, settings)
    return [f"{level.name} {text}" for level, text in remarks(config, settings)]


def test_a_member_without_assignors_says_once_that_the_default_changes():
    (told,) = remarked()
    assert told.startswith("INFO the setting assignors is left out, so range is used")
    assert remarked(assignors="range") == []


def test_heartbeats_too_rare_for_the_session_are_warned_of():
    (told,) = remarked(assignors="range", heartbeat_interval_ms=60_000)
    assert told.startswith("WARNING heartbeat_interval_ms is 60000, so the session of 45000 ms")


CONFIGS = pytest.mark.parametrize("config", [member_config, session_config])


@CONFIGS
def test_a_number_of_partitions_that_no_message_can_carry_is_refused(config):
    with pytest.raises(ValueError, match=r"topics has 't': 1099511627776; a topic has 2147483647 "):
        config("g", {"t": 1 << 40}, {})


@CONFIGS
@pytest.mark.parametrize(
    ("group_id", "topic", "settings"),
    [("\udcff", "t", {}), ("g", "\udcff", {}), ("g", "t", {"client_id": "\udcff"})],
)
def test_a_name_that_is_not_valid_unicode_is_refused(config, group_id, topic, settings):
    with pytest.raises(ValueError, match=r"is '\\udcff', which is not valid Unicode"):
        config(group_id, {topic: 1}, settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"session_timeout_ms": 10**12},
        {"protocol": "session", "drain_ms": 10**12},
        {"protocol": "session", "member_name": "w", "return_within_ms": 10**12},
    ],
)
def test_a_time_that_no_message_can_carry_is_refused_where_the_worker_is_made(settings):
    with pytest.raises(ValueError, match=r"_ms is 1000000000000; it is at most 2147483647 ms"):
        Worker("localhost:7400", "g", {"t": 1}, **settings)


@pytest.mark.parametrize("name", ["mode", "on_stall"])
def test_a_wish_of_another_type_is_refused_with_what_there_is(name):
    with pytest.raises(ValueError, match=rf"{name} is \['x'\]; it is one of '"):
        session_config("g", {"t": 1}, {"wishes": {name: ["x"]}})


@pytest.mark.parametrize(
    "wrong", [1 << 63, OffsetAndMetadata(1 << 63), OffsetAndMetadata(1, "\udcff")]
)
def test_an_offset_that_no_message_can_carry_is_refused(wrong):
    with pytest.raises(ValueError, match=r"offsets are at most|is not valid Unicode"):
        offsets_of({("t", 0): wrong})


@pytest.mark.parametrize(
    "call",
    [
        lambda member: member.released(("t", 0), 1 << 63),
        lambda member: member.report({("t", 0): 1 << 63}),
        lambda member: member.report({("t", 0): -1}),
    ],
)
async def test_a_session_member_refuses_an_offset_in_the_call_that_gave_it(call):
    with pytest.raises(ValueError, match=r"offsets are at most|the first row has 0"):
        call(SessionMember("localhost:7400", "g", {"t": 1}))
