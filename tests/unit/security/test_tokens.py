"""Static tokens, and what the authenticator makes of them."""

import base64

import pytest

from coordinator.security import tokens
from coordinator.security.authenticator import (
    REMEMBER_S,
    Authenticator,
    bearer_token,
    principal_of_certificate,
)
from coordinator.security.errors import CannotSecure, Unauthenticated


def test_tokens_are_long_and_never_the_same():
    made = {tokens.new_token() for _ in range(100)}
    assert len(made) == 100
    assert all(len(token) > 43 for token in made)


def test_the_file_holds_no_token_and_knows_whose_it_is():
    one, other, newer = (tokens.new_token() for _ in range(3))
    text = "\n".join(
        [
            "# Who may look.",
            tokens.line_for("grafana", one) + "  # until June",
            "",
            tokens.line_for("etl", other),
            tokens.line_for("grafana", newer),
        ]
    )
    assert not any(token in text for token in (one, other, newer))
    known = tokens.parse(text)
    assert known.principal_of(tokens.digest_of(one)) == "grafana"
    assert known.principal_of(tokens.digest_of(newer)) == "grafana"
    assert known.principal_of(tokens.digest_of(other)) == "etl"
    assert known.principal_of(tokens.digest_of(one + "x")) is None
    assert tokens.parse("").principal_of(tokens.digest_of(one)) is None


def test_a_line_that_is_none_is_named_by_its_number_and_not_shown():
    token = tokens.new_token()
    with pytest.raises(CannotSecure, match="line 2") as caught:
        tokens.parse(f"{tokens.line_for('a', token)}\na {token}\n")
    assert token not in str(caught.value)


@pytest.mark.parametrize("principal", ["", "two words", "a#b", "a\nb"])
def test_a_principal_is_one_word(principal):
    with pytest.raises(CannotSecure, match="one word"):
        tokens.line_for(principal, "t")


def test_tokens_of_the_same_beginning_are_compared_in_constant_time(monkeypatch):
    compared = []
    monkeypatch.setattr(
        tokens.hmac, "compare_digest", lambda a, b: compared.append((a, b)) or a == b
    )
    known = tokens.Tokens([(str(n), tokens.digest_of(str(n))) for n in range(5)])
    assert known.principal_of(tokens.digest_of("0")) == "0"
    assert len(compared) == 5  # All of them, though the first was it.


class Clock:
    now = 1_000.0

    def __call__(self):
        return self.now


def test_what_was_found_out_is_remembered_for_a_while_and_under_its_hash():
    token, clock = tokens.new_token(), Clock()
    known = tokens.Tokens([("grafana", tokens.digest_of(token))])
    authenticator = Authenticator(known, clock=clock)
    assert authenticator.remembered(token) is None
    caller = authenticator.of_token(token)
    assert caller.principal == "token:grafana"
    assert authenticator.remembered(token) is caller
    assert authenticator.is_current(caller)
    # The file was read again: whatever is in it now, the caller is looked at anew.
    assert not Authenticator(known, clock=clock).is_current(caller)
    assert token not in repr(vars(authenticator)) + repr(caller)
    clock.now += REMEMBER_S
    assert authenticator.remembered(token) is None
    assert not authenticator.is_current(caller)


def test_a_token_that_nobody_has_is_refused_and_not_repeated():
    with pytest.raises(Unauthenticated, match="--token-file") as caught:
        Authenticator(tokens.Tokens([])).of_token("guess-guess")
    assert "guess" not in str(caught.value)


BASIC = base64.b64encode(b"anyone:the:token").decode()


@pytest.mark.parametrize(
    ("header", "also_basic", "token"),
    [
        (None, False, None),
        ("Bearer abc", False, "abc"),
        ("bearer  abc ", False, "abc"),
        (f"Basic {BASIC}", True, "the:token"),
    ],
)
def test_the_token_of_a_header(header, also_basic, token):
    assert bearer_token(header, also_basic=also_basic) == token


@pytest.mark.parametrize(
    ("header", "also_basic"),
    [
        ("", False),
        ("Bearer", False),
        ("Bearer ", False),
        (f"Basic {BASIC}", False),
        ("Basic !!!", True),
        ("Basic " + base64.b64encode(b"anyone:").decode(), True),
        ("Basic " + base64.b64encode(b"\xff\xff").decode(), True),
        ("Digest x", True),
    ],
)
def test_a_header_without_a_token_is_refused(header, also_basic):
    with pytest.raises(Unauthenticated):
        bearer_token(header, also_basic=also_basic)


@pytest.mark.parametrize(
    ("uris", "common_name", "dns_names", "principal"),
    [
        (["spiffe://x/etl"], "etl-1", ["a.example"], "cert:spiffe://x/etl"),
        ([], "etl-1", ["a.example"], "cert:etl-1"),
        ([], "", ["a.example", "b.example"], "cert:a.example"),
        ([], "", [], None),
        ([], "two\nlines", [], None),
    ],
)
def test_the_principal_of_a_certificate(uris, common_name, dns_names, principal):
    found = principal_of_certificate(uris=uris, common_name=common_name, dns_names=dns_names)
    assert found == principal
