"""Profiles of the command line: what is stored, what is refused, and which source wins."""

from __future__ import annotations

import argparse
import json
import stat
from pathlib import Path

import pytest

from coordinator.cli.connection import add_common_flags, check_addresses, credentials_of, resolve
from coordinator.cli.flags import WrongUsage
from coordinator.cli.main import main
from coordinator.cli.profiles import file_of_profiles


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    for name in ("COORDINATOR_BOOTSTRAP", "COORDINATOR_PROFILE", "COORDINATOR_CLIENT_TLS_CA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


def profile(capsys, *words: str, status: int = 0):
    assert main(["profile", *words, "-o", "json"]) == status
    said = capsys.readouterr()
    return json.loads(said.out) if status == 0 else said.err


def resolved(*flags: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_common_flags(parser)
    options = parser.parse_args(flags)
    resolve(options)
    return options


def test_profiles_are_set_changed_listed_used_shown_and_deleted(capsys, folder):
    assert profile(capsys, "list") == []
    profile(capsys, "set", "prod", "--bootstrap", "a:1,b:2", "--tls")
    (row,) = profile(capsys, "set", "prod", "--tls-ca", "ca.pem", "--no-tls")
    assert row == {
        "profile": "prod",
        "is_current": False,
        "bootstrap": "a:1,b:2",
        "tls": False,
        "tls_ca": str(Path("ca.pem").absolute()),
        "tls_cert": None,
        "tls_key": None,
        "token_file": None,
        "insecure": False,
        "proxy": None,
    }
    profile(capsys, "set", "test", "--bootstrap", "c:3")
    assert profile(capsys, "use", "prod")[0]["is_current"]
    assert [row["profile"] for row in profile(capsys, "list")] == ["prod", "test"]
    assert profile(capsys, "show")[0]["profile"] == "prod"
    assert profile(capsys, "show", "test")[0]["bootstrap"] == "c:3"
    assert profile(capsys, "use", "none") == []
    assert profile(capsys, "show") == []
    assert profile(capsys, "delete", "prod") == [{"profile": "prod", "deleted": True}]
    assert [row["profile"] for row in profile(capsys, "list")] == ["test"]


def test_the_file_is_the_owners_alone(capsys):
    profile(capsys, "set", "prod", "--bootstrap", "a:1")
    path = file_of_profiles()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("action", ["use", "show", "delete"])
def test_a_profile_that_is_not_there_is_answered_with_those_that_are(action, capsys):
    profile(capsys, "set", "prod", "--bootstrap", "a:1")
    assert "There is no profile prd; the profiles are prod." in profile(
        capsys, action, "prd", status=1
    )


@pytest.mark.parametrize("name", ["none", "", "a b", "-x", "a.b", "é", "x" * 65, "a\n"])
def test_names_that_are_none_are_wrong_usage(name, capsys):
    assert main(["profile", "set", "--bootstrap", "a:1", "--", name]) == 2
    assert "a profile cannot be called" in capsys.readouterr().err
    assert not file_of_profiles().exists()


def test_a_token_that_others_can_read_is_refused_when_it_is_set_and_when_it_is_used(capsys, folder):
    token = folder / "token"
    token.write_text("secret\n")
    token.chmod(0o644)
    words = ["set", "prod", "--token-file", str(token)]
    assert f"chmod 600 {token}" in profile(capsys, *words, status=2)
    token.chmod(0o600)
    profile(capsys, *words)
    assert resolved("--profile", "prod").token_file == str(token)
    token.chmod(0o640)
    with pytest.raises(WrongUsage, match="others can read"):
        resolved("--profile", "prod")
    assert "secret" not in file_of_profiles().read_text()


def test_a_flag_beats_the_environment_which_beats_the_profile_which_beats_the_default(
    capsys, monkeypatch
):
    assert resolved().bootstrap == "127.0.0.1:7400"
    profile(capsys, "set", "prod", "--bootstrap", "profile:1", "--tls-ca", "/profile")
    assert resolved().bootstrap == "127.0.0.1:7400"  # It is not in use.
    profile(capsys, "use", "prod")
    assert resolved().bootstrap == "profile:1"
    assert credentials_of(resolved()).ca_file == "/profile"
    assert resolved("--profile", "none").bootstrap == "127.0.0.1:7400"
    monkeypatch.setenv("COORDINATOR_BOOTSTRAP", "environment:1")
    monkeypatch.setenv("COORDINATOR_CLIENT_TLS_CA", "/environment")
    assert resolved().bootstrap == "environment:1"
    assert credentials_of(resolved()).ca_file == "/environment"
    assert resolved("--bootstrap", "flag:1").bootstrap == "flag:1"
    assert credentials_of(resolved("--tls-ca", "/flag")).ca_file == "/flag"
    monkeypatch.setenv("COORDINATOR_PROFILE", "nope")
    with pytest.raises(WrongUsage, match="There is no profile nope; the profiles are prod"):
        resolved()
    assert resolved("--profile", "prod").bootstrap == "environment:1"


@pytest.mark.parametrize("text", ["current = ", "profiles = 3", "[profiles.a]\ntls = 'x'", "\xff"])
def test_a_damaged_file_is_named(text, capsys):
    path = file_of_profiles()
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("latin-1"))
    assert f"{path} is damaged" in profile(capsys, "list", status=2)
    assert main(["health"]) == 2
    assert main(["health", "--profile", "none", "--bootstrap", "127.0.0.1:1"]) == 1


def test_a_user_without_a_home_or_a_readable_folder_has_no_profile(monkeypatch, folder, capsys):
    (folder / "config").write_text("a file, where the folder should be")
    assert resolved().bootstrap == "127.0.0.1:7400"
    assert "Not a directory" in profile(capsys, "list", status=1)

    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert resolved().bootstrap == "127.0.0.1:7400"
    told = profile(capsys, "set", "a", "--bootstrap", "a:1", status=2)
    assert "you have no home folder" in told


@pytest.mark.parametrize(
    "address",
    ["", "a", "a:", "a:x", "a:0", "a:65536", "a:1,", "http://a:1", "a b:1", ":1", "::1:1", "a:1:2"],
)
def test_what_is_no_address_is_wrong_usage(address):
    with pytest.raises(WrongUsage, match="give HOST:PORT"):
        check_addresses(address)


@pytest.mark.parametrize("address", ["a:1", "a_b.c-d:65535,b:2", "[::1]:7400", "unix:/x", "é:1"])
def test_addresses(address):
    check_addresses(address)


@pytest.mark.parametrize("name", ["é.pem", "\U0001f600.pem", 'a"b\\c\n\x7f.pem'])
def test_a_file_of_any_name_is_read_back(name, capsys):
    (row,) = profile(capsys, "set", "prod", "--tls-ca", name)
    assert row["tls_ca"] == str(Path(name).absolute())
    assert profile(capsys, "show", "prod") == [row]


def test_a_file_whose_name_is_not_utf_8_is_refused_and_nothing_changes(capsys):
    profile(capsys, "set", "prod", "--bootstrap", "a:1")
    told = profile(capsys, "set", "prod", "--tls-ca", "\udcff.pem", status=1)
    assert "not text in UTF-8" in told
    assert profile(capsys, "show", "prod")[0]["tls_ca"] is None
    assert [file.name for file in file_of_profiles().parent.iterdir()] == ["profiles.toml"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"profiles = 3", "profiles is no table"),
        (b"profiles = [1]", "profiles is no table"),
        (b"[profiles]\na = 1", "a is no table"),
        (b"\xff\xfe", "it is not text in UTF-8"),
    ],
)
def test_a_damaged_file_is_described_without_words_of_python(content, why, capsys):
    profile(capsys, "set", "prod", "--bootstrap", "a:1")
    file_of_profiles().write_bytes(content)
    told = profile(capsys, "list", status=2)
    assert told == f"coordinator: {file_of_profiles()} is damaged: {why}\n"
