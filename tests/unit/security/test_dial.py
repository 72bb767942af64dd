"""Credentials of clients, from the environment or arguments; no token goes over plain text."""

import pickle

import pytest

from coordinator.cli.main import main
from coordinator.dial import CannotDial, Credentials, address_of, is_loopback
from coordinator.spark.options import StreamOptions


def test_the_environment_says_what_nobody_told():
    environment = {
        "COORDINATOR_CLIENT_TLS_CA": "ca.pem",
        "COORDINATOR_CLIENT_TLS_CERT": "me.pem",
        "COORDINATOR_CLIENT_TLS_KEY": "me.key",
        "COORDINATOR_CLIENT_TOKEN_FILE": "token",
        "COORDINATOR_CLIENT_INSECURE": "1",
    }
    credentials = Credentials.from_environment(environment)
    assert credentials == Credentials(
        ca_file="ca.pem", cert_file="me.pem", key_file="me.key", token_file="token", insecure=True
    )
    assert credentials.is_tls
    assert not Credentials.from_environment({}).is_tls
    assert Credentials.from_environment({"COORDINATOR_CLIENT_TLS": "true"}).is_tls


@pytest.mark.parametrize(
    ("host", "is_it"),
    [
        ("localhost", True), ("127.0.0.1", True), ("127.1.2.3", True), ("::1", True),
        ("[::1]", True), ("0.0.0.0", False), ("[::]", False), ("10.0.0.1", False),
        ("localhost.example", False), ("", False),
    ],
)  # fmt: skip
def test_what_is_the_loopback(host, is_it):
    assert is_loopback(host) is is_it


@pytest.mark.parametrize("address", ["10.0.0.1:7400", "node-1.example:7400"])
def test_a_token_travels_in_plain_text_only_if_it_is_said(address):
    shown = Credentials(token="secret")
    for opening in (shown.open, shown.open_aio):
        with pytest.raises(CannotDial, match="plain text") as caught:
            opening(address)
        assert "secret" not in str(caught.value)


def test_the_token_is_read_again_and_is_in_no_representation(tmp_path):
    path = tmp_path / "token"
    path.write_text("one\n")
    shown = Credentials(token_file=str(path))
    assert shown.metadata() == (("authorization", "Bearer one"),)
    path.write_text("two")
    assert shown.metadata() == (("authorization", "Bearer two"),)
    assert Credentials().metadata() is None
    assert "secret" not in repr(Credentials(token="secret"))
    path.unlink()
    with pytest.raises(CannotDial, match="cannot read"):
        shown.metadata()


def test_a_certificate_without_its_key_is_no_use():
    with pytest.raises(CannotDial, match="needs its key"):
        Credentials(cert_file="me.pem").open("127.0.0.1:1")


def test_another_state_tells_that_a_file_was_exchanged(tmp_path):
    path = tmp_path / "ca.pem"
    shown = Credentials(ca_file=str(path), token_file="token")
    states = [shown.state()]
    for text in ("one", "longer"):
        path.write_text(text)
        states.append(shown.state())
    assert len(set(states)) == 3
    assert shown.state() == states[-1]


def test_what_a_command_cannot_read_is_said_in_a_line(capsys):
    assert main(["groups", "list", "--tls-ca", "not/there.pem"]) == 1
    assert capsys.readouterr().err == (
        "coordinator: cannot read not/there.pem: No such file or directory\n"
    )


def test_options_of_a_query_become_credentials_that_tasks_can_be_sent(tmp_path, monkeypatch):
    options = {"coordinator": "a:1", "group": "g", "source": f"arrow:{tmp_path}", "topic": "t"}
    monkeypatch.setenv("COORDINATOR_CLIENT_TLS_CA", "theirs.pem")
    assert StreamOptions.parse(options).credentials == Credentials(ca_file="theirs.pem")
    told = {"tlsCa": "ca.pem", "tlsCert": "me.pem", "tlsKey": "me.key", "tokenFile": "token"}
    parsed = StreamOptions.parse({**options, **told, "tls": "true"})
    wanted = Credentials(
        tls=True, ca_file="ca.pem", cert_file="me.pem", key_file="me.key", token_file="token"
    )
    assert parsed.credentials == parsed.member_settings()["credentials"] == wanted
    assert pickle.loads(pickle.dumps(wanted)) == wanted


@pytest.mark.parametrize(
    ("host", "address"),
    [("node-1", "node-1:7400"), ("10.0.0.1", "10.0.0.1:7400"),
     ("fd00::1", "[fd00::1]:7400"), ("[fd00::1]", "[fd00::1]:7400")],
)  # fmt: skip
def test_an_ipv6_address_is_dialled_in_brackets(host, address):
    assert address_of(host, 7400) == address
