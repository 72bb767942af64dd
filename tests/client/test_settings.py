"""Settings of members as their callers write them."""

from __future__ import annotations

import pytest

from coordinator.client import BlockingMember, GroupMember
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
