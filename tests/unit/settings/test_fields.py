"""Each setting's metadata: it is whole, and help, page and schema say what it says."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path

import pytest

from coordinator.cli.main import main
from coordinator.core.setting import Section, settings_of
from coordinator.settings import SETTINGS, InvalidSetting, Settings
from coordinator.settings.parsers import SharedStore

DEPLOY = Path(__file__).parents[3] / "deploy"
SECTIONS: list[type[Section]] = [
    type(getattr(Settings(), field.name)) for field in fields(Settings)
]
NO_UNIT = {"advertised_port", "node_id"}
"""Numbers that name something and measure nothing."""
UNITS_IN_NAMES = {"ms", "bytes", "mib", "minutes", "percent"}

every_setting = pytest.mark.parametrize("name", SETTINGS)


def test_a_name_is_unique_over_all_sections():
    names = [name for section in SECTIONS for name in settings_of(section)]
    assert sorted(set(names)) == sorted(names)
    assert set(names) == set(SETTINGS)


@every_setting
def test_it_has_a_meaning_and_a_number_its_unit_and_bounds(name):
    setting = SETTINGS[name]
    assert re.fullmatch(r"\S.*\.|\S.*…", setting.meaning), "a whole sentence"
    setting.check(name, setting.default)
    is_number = type(setting.default) is int
    assert (setting.bounds is not None) == is_number
    if setting.bounds is not None:
        assert bool(setting.bounds.unit) == (name not in NO_UNIT)
        assert setting.bounds.low < setting.bounds.high


@every_setting
def test_a_unit_of_measure_is_part_of_the_name(name):
    bounds = SETTINGS[name].bounds
    unit = "" if bounds is None else bounds.unit.lower()
    last = name.rsplit("_", 1)[-1]
    assert (unit in UNITS_IN_NAMES) == (last in UNITS_IN_NAMES)
    assert unit not in UNITS_IN_NAMES or unit == last


@pytest.mark.parametrize("command", ["serve", "config"])
def test_help_says_all_of_it(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = "".join(capsys.readouterr().out.split())  # Lines may break anywhere in it.
    for name, setting in SETTINGS.items():
        flag = "--" + name.replace("_", "-")
        described = setting.description().removesuffix("]")
        line = f"{described}; COORDINATOR_{name.upper()}]"
        assert "".join(line.split()) in text
        assert flag in text


def test_a_description_has_unit_bounds_choices_and_default():
    assert (
        SETTINGS["store_session_timeout_ms"]
        .description()
        .endswith(" [unit: ms; 400 to 600,000; default: 2000]")
    )
    assert SETTINGS["max_groups"].description().endswith(" [unit: groups; at least 0; default: 0]")
    assert SETTINGS["node_id"].description().endswith(" [at least 0; default: 0]")
    assert SETTINGS["acks"].description().endswith(" [one of store, all; default: store]")
    assert SETTINGS["share"].description().endswith(" [default: empty]")
    assert SETTINGS["insecure"].description().endswith(" [default: false]")


def test_the_schema_of_the_chart_says_all_of_it():
    schema = json.loads((DEPLOY / "helm/coordinator/values.schema.json").read_text())
    entries = schema["properties"]["settings"]["properties"]
    assert len(entries) > len(SETTINGS) / 2
    kinds = {"integer": int, "string": str, "boolean": bool}
    for name, entry in entries.items():
        setting, bounds = SETTINGS[name], SETTINGS[name].bounds
        assert entry.pop("description") == setting.description()
        assert kinds[entry.pop("type")] is type(setting.default)
        assert tuple(entry.pop("enum", ())) == setting.choices
        assert entry == ({} if bounds is None else {"minimum": bounds.low, "maximum": bounds.high})


@every_setting
def test_values_beyond_the_bounds_are_refused_wherever_they_are_given(name):
    setting = SETTINGS[name]
    (section,) = [each for each in SECTIONS if name in settings_of(each)]
    wrong = [None, 1.5, "x" if type(setting.default) is not str else 1]
    if setting.bounds is not None:
        wrong += [setting.bounds.low - 1, setting.bounds.high + 1, True]
    if setting.choices or callable(setting.allowed):
        wrong.append("n/a")
    for value in wrong:
        for make in (Settings.of, section):
            with pytest.raises(InvalidSetting, match=f"^{name} is {value!r}; (it|give)"):
                make(**{name: value})


def test_the_smallest_session_timeout_is_at_most_the_largest():
    expected = "group_min_session_timeout_ms is 11, which is larger than .*_max_.*_ms, 10"
    with pytest.raises(InvalidSetting, match=expected):
        Settings.of(group_min_session_timeout_ms=11, group_max_session_timeout_ms=10)
    Settings.of(group_min_session_timeout_ms=10, group_max_session_timeout_ms=10)


def test_flat_names_build_every_section_and_change_one():
    settings = Settings.of(shards=3, max_groups=7, insecure=True)
    assert (settings.storage.shards, settings.limits.max_groups) == (3, 7)
    assert settings.security.insecure
    assert settings.values()["shards"] == 3
    changed = settings.changed(shards=4)
    assert changed == Settings.of(shards=4, max_groups=7, insecure=True)
    assert settings.storage.shards == 3


@pytest.mark.parametrize("name", ["shard", "groups", "max_group"])
def test_a_name_that_does_not_exist_is_refused(name):
    with pytest.raises(InvalidSetting, match=f"there is no setting {name}"):
        Settings.of(**{name: 1})


def test_a_shared_store_is_taken_apart():
    storage = Settings.of(store="zookeeper://one:2181,two:2181/groups-1").storage
    assert storage.shared_store == SharedStore("zookeeper", ("one:2181", "two:2181"), "groups-1")
    assert Settings.of(store="sqlite").storage.shared_store is None
