"""Settings: where they come from, and what is refused with a word on what would do."""

from __future__ import annotations

import pytest

from coordinator.settings import InvalidSetting, Settings, SharedStore, load


def test_flags_win_over_the_environment_and_that_over_the_file(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('shards = 1\nnode_id = 1\nlog_level = "debug"\n')
    environment = {"COORDINATOR_SHARDS": "2", "COORDINATOR_NODE_ID": "2", "HOME": "/"}
    settings, origins = load(flags={"shards": "3"}, environment=environment, file=file)
    assert (settings.shards, settings.node_id, settings.log_level) == (3, 2, "debug")
    assert origins["shards"] == "--shards"
    assert origins["node_id"] == "COORDINATOR_NODE_ID"
    assert origins["log_level"] == str(file)
    assert origins["listen"] == "default"


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"shard": "3"}, "did you mean shards"),
        ({"shards": "many"}, "it takes int"),
        ({"shards": "0"}, "it may be 1 to 1024"),
        ({"log_level": "loud"}, "it may be debug, info"),
        ({"listen": "7400"}, "give HOST:PORT"),
        ({"store": "etcd://one:2379"}, "etcd://HOST:PORT,HOST:PORT/NAME"),
        ({"store": "redis://one:6379/x"}, "it may be sqlite, memory"),
    ],
)
def test_what_cannot_be_is_refused(flags, words):
    with pytest.raises(InvalidSetting, match=words):
        load(flags=flags, environment={}, file=None)


def test_a_shared_store_is_taken_apart():
    settings = Settings(store="zookeeper://one:2181,two:2181/groups-1")
    assert settings.shared_store == SharedStore("zookeeper", ("one:2181", "two:2181"), "groups-1")
    assert Settings(store="sqlite").shared_store is None
