"""SASL of a Kafka connection: what may come when, what it holds, and what is said of a failure."""

from __future__ import annotations

import pytest

from coordinator.service.kafka.sasl import (
    AUTHENTICATION_FAILED,
    ILLEGAL_STATE,
    NOT_VALID,
    UNSUPPORTED_MECHANISM,
    Mechanism,
    Presented,
    Sasl,
    SaslFailed,
    SaslStage,
)

BOTH = (Mechanism.PLAIN, Mechanism.OAUTHBEARER)
PLAIN = b"\0me\0cgc_secret"
JWT = b"n,,\x01auth=Bearer a.b.c\x01\x01"


def chosen(mechanism: str = "PLAIN", version: int = 1) -> Sasl:
    sasl = Sasl()
    sasl.handshake(mechanism, version, BOTH)
    return sasl


def authenticated(principal: str = "token:etl") -> Sasl:
    sasl = chosen()
    sasl.succeed(sasl.receive(PLAIN, bare=False), principal)
    return sasl


def failure(act) -> SaslFailed:
    with pytest.raises(SaslFailed) as caught:
        act()
    return caught.value


@pytest.mark.parametrize(
    ("mechanism", "message", "presented"),
    [
        ("PLAIN", b"\0me\0cgc_secret", Presented("cgc_secret")),
        ("PLAIN", b"me\0me\0cgc_secret", Presented("cgc_secret")),
        ("PLAIN", "\0jürgen\0cgc_secret".encode(), Presented("cgc_secret")),
        ("OAUTHBEARER", JWT, Presented("a.b.c")),
        ("OAUTHBEARER", b"n,a=alice,\x01auth=bearer  a.b.c\x01\x01", Presented("a.b.c", "alice")),
        ("OAUTHBEARER", b"n,a=a=2Cb=3D,\x01auth=Bearer x\x01\x01", Presented("x", "a,b=")),
        ("OAUTHBEARER", b"y,,\x01x=1\x01auth=Bearer x\x01y=2\x01\x01", Presented("x")),
    ],
)
@pytest.mark.parametrize("bare", [False, True])
def test_a_token_is_read_in_the_form_of_its_mechanism(mechanism, message, presented, bare):
    sasl = chosen(mechanism, version=0 if bare else 1)
    assert sasl.takes_bare_token is bare
    assert sasl.receive(message, bare=bare) == presented
    sasl.succeed(Presented(presented.token), "token:etl")
    assert sasl.stage is SaslStage.AUTHENTICATED
    assert not sasl.takes_bare_token


@pytest.mark.parametrize(
    ("mechanism", "message", "words"),
    [
        ("PLAIN", b"", "NUL"),
        ("PLAIN", b"me\0secret", "NUL"),
        ("PLAIN", b"\0me\0sec\0ret", "NUL"),
        ("PLAIN", b"\0me\0", "as the password"),
        ("PLAIN", b"\0\0secret", "any user name"),
        ("PLAIN", b"you\0me\0secret", "speak for somebody else"),
        ("PLAIN", b"\0me\0\xff", "not UTF-8"),
        ("OAUTHBEARER", b"", "GS2"),
        ("OAUTHBEARER", b"p=tls-unique,,\x01auth=Bearer x\x01\x01", "GS2"),
        ("OAUTHBEARER", b"n,b=x,\x01auth=Bearer x\x01\x01", "GS2"),
        ("OAUTHBEARER", b"n,,more\x01auth=Bearer x\x01\x01", "GS2"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer x\x01", "does not end"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer x", "does not end"),
        ("OAUTHBEARER", b"n,,\x01\x01", "auth=Bearer"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01", "auth=Bearer"),
        ("OAUTHBEARER", b"n,,\x01auth=Basic x\x01\x01", "bearer token"),
        ("OAUTHBEARER", b"n,,\x01auth=Bearer \x01\x01", "bearer token"),
    ],
)
def test_a_message_of_another_form_is_refused_and_not_repeated(mechanism, message, words):
    sasl = chosen(mechanism)
    failed = failure(lambda: sasl.receive(message, bare=False))
    assert failed.code == AUTHENTICATION_FAILED
    assert words in str(failed)
    assert "secret" not in str(failed)
    assert sasl.stage is SaslStage.FAILED


def test_only_what_is_offered_can_be_chosen_and_the_reason_is_given():
    failed = failure(lambda: Sasl().handshake("GSSAPI", 1, BOTH))
    assert failed.code == UNSUPPORTED_MECHANISM
    assert "PLAIN, OAUTHBEARER" in str(failed)
    failed = failure(lambda: Sasl().handshake("SCRAM-SHA-512", 1, (Mechanism.PLAIN,)))
    assert failed.code == UNSUPPORTED_MECHANISM
    assert "SHA-256" in str(failed)
    assert "use PLAIN over TLS" in str(failed)
    assert failure(lambda: Sasl().handshake("OAUTHBEARER", 1, (Mechanism.PLAIN,)))
    assert "without SASL" in str(failure(lambda: Sasl().handshake("PLAIN", 1, ())))
    assert failure(lambda: Sasl().handshake("plain", 1, BOTH)).code == UNSUPPORTED_MECHANISM


@pytest.mark.parametrize(
    "act",
    [
        lambda sasl: sasl.receive(PLAIN, bare=False),
        lambda sasl: sasl.receive(PLAIN, bare=True),
        lambda sasl: (sasl.handshake("PLAIN", 1, BOTH), sasl.handshake("PLAIN", 1, BOTH)),
        lambda sasl: (sasl.handshake("PLAIN", 0, BOTH), sasl.receive(PLAIN, bare=False)),
        lambda sasl: (sasl.handshake("PLAIN", 1, BOTH), sasl.receive(PLAIN, bare=True)),
    ],
)
def test_what_is_not_due_is_refused(act):
    sasl = Sasl()
    assert failure(lambda: act(sasl)).code == ILLEGAL_STATE
    assert sasl.stage is SaslStage.FAILED
    assert failure(lambda: sasl.handshake("PLAIN", 1, BOTH)).code == ILLEGAL_STATE
    assert failure(lambda: sasl.receive(PLAIN, bare=False)).code == ILLEGAL_STATE


def test_the_same_principal_authenticates_again_by_either_mechanism():
    sasl = authenticated("token:etl")
    sasl.handshake("OAUTHBEARER", 1, BOTH)
    sasl.succeed(sasl.receive(JWT, bare=False), "token:etl")
    assert sasl.stage is SaslStage.AUTHENTICATED


def test_another_principal_cannot_take_the_connection_over():
    sasl = authenticated("token:etl")
    sasl.handshake("PLAIN", 1, BOTH)
    presented = sasl.receive(PLAIN, bare=False)
    failed = failure(lambda: sasl.succeed(presented, "token:op"))
    assert failed.code == AUTHENTICATION_FAILED
    assert "token:etl" in str(failed)
    assert sasl.stage is SaslStage.FAILED


def test_an_authenticated_connection_takes_no_bare_token():
    sasl = authenticated()
    assert failure(lambda: sasl.handshake("PLAIN", 0, BOTH)).code == ILLEGAL_STATE


@pytest.mark.parametrize("name", ["alice", "jwt:alice", ""])
def test_who_names_itself_is_authenticated(name):
    sasl = chosen("OAUTHBEARER")
    sasl.succeed(Presented("x", name), "jwt:alice")
    assert sasl.stage is SaslStage.AUTHENTICATED


@pytest.mark.parametrize("name", ["bob", "cert:alice", "Alice"])
def test_who_names_somebody_else_is_not(name):
    sasl = chosen("OAUTHBEARER")
    failed = failure(lambda: sasl.succeed(Presented("x", name), "jwt:alice"))
    assert failed.code == AUTHENTICATION_FAILED
    assert sasl.stage is SaslStage.FAILED


def test_only_oauthbearer_has_a_message_of_failure():
    assert chosen("OAUTHBEARER").error_reply() == NOT_VALID
    assert chosen("PLAIN").error_reply() == b""
