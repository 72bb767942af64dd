"""Sources of settings, and messages about wrong ones."""

from __future__ import annotations

import pytest

from coordinator.cli.main import main
from coordinator.settings import SETTINGS, InvalidSetting
from coordinator.settings.sources import Sources, load, problems


def test_flags_beat_the_environment_which_beats_the_file(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("shards = 4\nnode_id = 1\ngroup_max_size = 9\n")
    environment = {"COORDINATOR_NODE_ID": "2", "COORDINATOR_GROUP_MAX_SIZE": "8", "HOME": "/"}
    settings, origins = load(
        Sources(flags={"group_max_size": "7"}, environment=environment, file=file)
    )
    assert (settings.storage.shards, settings.cluster.node_id) == (4, 2)
    assert settings.groups.group_max_size == 7
    assert origins["shards"] == str(file)
    assert origins["node_id"] == "COORDINATOR_NODE_ID"
    assert origins["group_max_size"] == "--group-max-size"
    assert origins["listen"] == "default"


def test_what_the_environment_tells_clients_is_not_for_the_server():
    environment = {
        "COORDINATOR_CLIENT_TLS_CA": "ca.pem",
        "COORDINATOR_BOOTSTRAP": "a:1",
        "COORDINATOR_INSECURE": "yes",
    }
    settings, _ = load(Sources(flags={}, environment=environment, file=None))
    assert settings.security.insecure


@pytest.mark.parametrize(
    ("url", "folder"), [("sqlite:///jobs", "jobs"), ("sqlite:////var/lib/jobs", "/var/lib/jobs")]
)
def test_a_folder_may_be_named_by_a_url(url, folder):
    settings, _ = load(Sources(environment={"COORDINATOR_STORE": url}))
    assert (settings.storage.store, settings.storage.data_dir) == ("sqlite", folder)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"store": "sqlite://jobs"}, "names no folder: write sqlite:///jobs"),
        ({"store": "sqlite:///"}, "names no folder"),
        ({"store": "sqlite:///jobs", "data_dir": "x"}, "leave data_dir out"),
        ({"group_max_sise": "1"}, "did you mean group_max_size"),
        ({"shards": "0"}, "may be 1 to"),
        ({"shards": "many"}, "takes a whole number"),
        ({"listen": "nowhere"}, "HOST:PORT"),
        ({"log_format": "xml"}, "json"),
        ({"group_min_session_timeout_ms": "5000000"}, "larger than"),
        ({"group_notice_cancelled_calls": "maybe"}, "takes true or false"),
        ({"shard": "3"}, "did you mean shards"),
        ({"shards": "0"}, "it may be 1 to 1024"),
        ({"listen": "7400"}, "give HOST:PORT"),
        ({"log_level": "loud"}, "it may be debug, info"),
        ({"store": "etcd://one:2379"}, "etcd://HOST:PORT,HOST:PORT/NAME"),
        ({"store": "redis://one:6379/x"}, "it may be sqlite, memory"),
    ],
)
def test_what_cannot_be_is_refused(flags, message):
    with pytest.raises(InvalidSetting, match=message):
        load(Sources(flags=flags, environment={}, file=None))


def test_config_prints_every_setting_with_its_origin(capsys):
    assert main(["config", "--shards", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(SETTINGS) + 1  # The headings.
    assert next(line for line in lines if line.startswith("shards")).split() == [
        "shards", "3", "--shards",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["flag", "environment", "file"])
def test_a_wrong_setting_ends_with_status_2_and_names_its_source(
    name, capsys, tmp_path, monkeypatch
):
    file = tmp_path / "c.toml"
    file.write_text('shards = "x"\n' if name == "file" else "")
    if name == "environment":
        monkeypatch.setenv("COORDINATOR_SHARDS", "x")
    flags = ["--shards", "x"] if name == "flag" else []
    source = {"flag": "--shards", "environment": "COORDINATOR_SHARDS", "file": file}[name]
    for command in ("serve", "config"):
        assert main([command, "--config", str(file), *flags]) == 2
        error = capsys.readouterr().err
        assert error == f"coordinator: {source}: shards is 'x'; it takes a whole number\n"


def test_a_wrong_value_is_refused_even_where_another_source_replaces_it():
    sources = Sources(flags={"shards": "4"}, environment={"COORDINATOR_SHARDS": "0"})
    with pytest.raises(
        InvalidSetting, match="COORDINATOR_SHARDS: shards is 0; it may be 1 to 1024"
    ):
        load(sources)


def checked(capsys, *flags: str) -> tuple[int, str, str]:
    status = main(["config", "check", *flags])
    out, err = capsys.readouterr()
    return status, out, err


def test_check_says_everything_that_is_wrong_and_who_gave_it(capsys, tmp_path, monkeypatch):
    file = tmp_path / "c.toml"
    file.write_text('shards = 0\ngroup_max_sise = 3\nlog_level = "loud"\n')
    monkeypatch.setenv("COORDINATOR_REPLICAS", "many")
    status, out, err = checked(capsys, "--config", str(file), "--listen", "nowhere:1")
    assert (status, out) == (2, "")
    assert err.splitlines() == [
        f"coordinator: {file}: shards is 0; it may be 1 to 1024",
        f"coordinator: {file}: there is no setting group_max_sise; did you mean group_max_size?",
        f"coordinator: {file}: log_level is 'loud'; it may be debug, info, warning, error",
        "coordinator: COORDINATOR_REPLICAS: replicas is 'many'; it takes a whole number",
    ]


def test_check_looks_at_what_settings_say_together_and_at_the_files_they_name(capsys):
    flags = ("--group-min-session-timeout-ms", "3000000")
    assert checked(capsys, *flags)[0] == 2
    assert checked(capsys, *flags, "--group-max-session-timeout-ms", "4000000")[0] == 0
    status, _, err = checked(capsys, "--tls-cert-file", "/not/there.pem", "--tls-key-file", "/x")
    assert (status, "/not/there.pem" in err) == (2, True)


def test_check_warns_of_what_is_seldom_meant(capsys):
    assert checked(capsys)[1].endswith("all are valid\n")
    status, out, _ = checked(capsys, "--store", "memory", "--insecure")
    assert status == 0
    assert out.count("warning: ") == 2


def test_a_file_that_is_no_toml_is_one_problem(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("shards = = 3\n")
    (problem,) = problems(Sources(file=file))
    assert str(file) in problem
