"""Settings of members as their callers write them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.client import (
    BlockingMember,
    Holding,
    Member,
    OffsetAndMetadata,
    TopicPartition,
    Worker,
)
from coordinator.client.settings.configs import GroupWishes
from coordinator.client.settings.reading import OF_WORKERS, SETTINGS, config_of, process_of, remarks
from coordinator.client.settings.setting import settings_of
from coordinator.client.validation import offsets_of
from coordinator.core.values.policy import Policy

BOTH = pytest.mark.parametrize("kind", [Member, BlockingMember])


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
    with pytest.raises(TypeError, match="there are assignors, fallback_assignor, instance_id"):
        kind("localhost:7400", "g", {"t": 1}, zzz=1)


def remarked(**settings) -> list[str]:
    config = config_of("classic", "g", {"t": 1}, settings)
    return [f"{level.name} {text}" for level, text in remarks(config, settings)]


def test_a_member_without_assignors_says_once_that_the_default_changes():
    (told,) = remarked()
    assert told.startswith("INFO the setting assignors is left out, so range is used")
    assert remarked(assignors="range") == []


def test_heartbeats_too_rare_for_the_session_are_warned_of():
    (told,) = remarked(assignors="range", heartbeat_interval_ms=60_000)
    assert told.startswith("WARNING heartbeat_interval_ms is 60000, so the session of 45000 ms")


PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "session"])


@PROTOCOLS
def test_a_number_of_partitions_that_no_message_can_carry_is_refused(protocol):
    with pytest.raises(ValueError, match=r"topics has 't': 1099511627776; a topic has 2147483647 "):
        config_of(protocol, "g", {"t": 1 << 40}, {})


@PROTOCOLS
@pytest.mark.parametrize(
    ("group_id", "topic", "settings"),
    [("\udcff", "t", {}), ("g", "\udcff", {}), ("g", "t", {"client_id": "\udcff"})],
)
def test_a_name_that_is_not_valid_unicode_is_refused(protocol, group_id, topic, settings):
    with pytest.raises(ValueError, match=r"is '\\udcff', which is not valid Unicode"):
        config_of(protocol, group_id, {topic: 1}, settings)


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


@pytest.mark.parametrize(
    ("protocol", "settings", "message"),
    [
        ("session", {"instance_id": "x"}, "of the session protocol; write member_name='...'"),
        ("session", {"session_timeout_ms": 9}, "; write wishes={'lease_ms': 10_000}"),
        ("session", {"assignors": "range"}, "; the coordinator assigns"),
        ("session", {"protocol_type": "x"}, "protocol_type is no setting of the session protocol"),
        ("classic", {"member_name": "x"}, "of the classic protocol; write instance_id='...'"),
        ("classic", {"capacity": 2.0}, "capacity is no setting of the classic protocol"),
        ("classic", {"max_failures": 2}, "a member has no setting 'max_failures'; there are"),
        ("sessions", {}, "protocol is 'sessions'; it is one of 'classic', 'session'"),
    ],
)
def test_a_setting_of_the_other_protocol_is_refused_with_what_to_write_instead(
    protocol, settings, message
):
    with pytest.raises((TypeError, ValueError)) as caught:
        config_of(protocol, "g", {"t": 1}, settings)
    assert message in str(caught.value)


@PROTOCOLS
def test_a_worker_has_no_settings_of_the_other_protocol_nor_those_with_another_place(protocol):
    for name, setting in SETTINGS.items():
        if setting.in_workers or setting.protocol not in (None, protocol):
            instead = re.escape(setting.in_workers or setting.instead)
            with pytest.raises(TypeError, match=f"{name}.*{instead}"):
                Worker("localhost:7400", "g", {"t": 1}, protocol=protocol, **{name: 1})


EVERY = SETTINGS | settings_of(GroupWishes)
UNITS_IN_NAMES = {"ms", "s"}


@pytest.mark.parametrize("name", EVERY)
def test_a_setting_has_its_sentence_its_unit_and_a_default_that_it_could_be_given(name):
    setting = EVERY[name]
    assert re.fullmatch(r"[A-Z].*[^.]\.", setting.meaning)
    last = name.rsplit("_", 1)[-1]
    assert (setting.kind.unit in UNITS_IN_NAMES) == (last in UNITS_IN_NAMES)
    assert setting.kind.unit not in UNITS_IN_NAMES or setting.kind.unit == last
    if " " not in str(setting.default) and name not in ("clock", "random", "wishes"):
        setting.take(name, setting.default)


def test_wishes_have_the_defaults_of_the_coordinator():
    told = {name: setting.default for name, setting in settings_of(GroupWishes).items()}
    there = {
        name: getattr(default, "value", default) for name, default in Policy.defaults().items()
    }
    assert told | {"initial_delay_ms": None, "lease_ms": 10_000} == there
    assert list(told) == list(there)


def test_members_of_session_groups_give_back_by_released_and_others_by_poll():
    assert process_of("session", {}).give_back == "released"
    assert process_of("classic", {}).give_back == "poll"
    assert process_of("classic", {"give_back": "released"}).give_back == "released"
    with pytest.raises(ValueError, match="give_back is 'never'; it is one of 'poll', 'released'"):
        process_of("session", {"give_back": "never"})


def test_a_worker_names_what_is_nearest_of_its_own_settings_too():
    with pytest.raises(TypeError, match="did you mean return_within_ms"):
        Worker("localhost:7400", "g", {"t": 1}, protocol="session", return_with_ms=1)
    assert set(OF_WORKERS) == {"max_failures"}


def test_what_is_made_of_the_settings_is_up_to_date():
    root = Path(__file__).parents[3]
    command = [sys.executable, str(root / "deploy/docs/member_settings.py"), "--check"]
    made = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert (made.returncode, made.stdout) == (0, ""), made.stderr


@pytest.mark.parametrize("name", ["mode", "on_stall"])
def test_a_wish_of_another_type_is_refused_with_what_there_is(name):
    with pytest.raises(ValueError, match=rf"{name} is \['x'\]; it is one of '"):
        config_of("session", "g", {"t": 1}, {"wishes": {name: ["x"]}})


@pytest.mark.parametrize(
    "wrong", [1 << 63, OffsetAndMetadata(1 << 63), OffsetAndMetadata(1, "\udcff")]
)
def test_an_offset_that_no_message_can_carry_is_refused(wrong):
    with pytest.raises(ValueError, match=r"offsets are at most|is not valid Unicode"):
        offsets_of({("t", 0): wrong})


async def refused_at_once(member, position):
    member.released(Holding(TopicPartition("t", 0)), position)


@pytest.mark.parametrize(
    "call",
    [
        lambda member: refused_at_once(member, 1 << 63),
        lambda member: member.report({("t", 0): 1 << 63}),
        lambda member: member.report({("t", 0): -1}),
    ],
)
async def test_a_session_member_refuses_an_offset_in_the_call_that_gave_it(call):
    with pytest.raises(ValueError, match=r"offsets are at most|the first row has 0"):
        await call(Member("localhost:7400", "g", {"t": 1}, protocol="session"))
