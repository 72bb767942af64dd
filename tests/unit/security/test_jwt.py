"""JSON web tokens: which are believed, and why others are not. No network: keys are at hand."""

import base64
import json
import time

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from coordinator.security.errors import CannotSecure, Unauthenticated
from coordinator.security.jwt import JwtVerifier, keys_of_text

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
STRANGER = ec.generate_private_key(ec.SECP256R1())


def public(algorithm, key, kid):
    return {**json.loads(algorithm.to_jwk(key.public_key())), "kid": kid, "use": "sig"}


JWKS = json.dumps(
    {
        "keys": [
            {**public(RSAAlgorithm, RSA, "rsa"), "alg": "RS256"},
            {**public(ECAlgorithm, EC, "ec"), "alg": "ES256"},
            {**public(OKPAlgorithm, ED, "ed"), "alg": "EdDSA"},
        ]
    }
)
NOW = int(time.time())
LATER_S = 86_400
"""Far longer than the tests take: `NOW` is when they were collected."""
GOOD = {"sub": "alice", "aud": "coordinator", "iss": "https://id.example", "exp": NOW + LATER_S}


def verifier(text=JWKS, issuer="https://id.example", claim="sub"):
    return JwtVerifier(keys_of_text(text), audience="coordinator", issuer=issuer, claim=claim)


def signed(claims, key=EC, algorithm="ES256", kid="ec"):
    return jwt.encode(claims, key, algorithm=algorithm, headers={"kid": kid} if kid else None)


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"), [(RSA, "RS256", "rsa"), (EC, "ES256", "ec"), (ED, "EdDSA", "ed")]
)
def test_a_sound_token_names_its_subject_and_its_end(key, algorithm, kid):
    claims = verifier().verify(signed(GOOD, key, algorithm, kid))
    assert claims.subject == "alice"
    assert NOW + LATER_S <= claims.until_s <= NOW + LATER_S + 60


def test_another_claim_may_name_the_principal():
    token = signed({**GOOD, "email": "alice@example.org"})
    assert verifier(claim="email").verify(token).subject == "alice@example.org"


def test_without_a_wanted_issuer_any_will_do_whose_key_is_known():
    assert verifier(issuer="").verify(signed({**GOOD, "iss": "else"})).subject == "alice"


def without(name):
    return {key: value for key, value in GOOD.items() if key != name}


def unsigned():
    def part(content):
        return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'none', 'kid': 'ec'})}.{part(GOOD)}."


def signed_with_the_public_key():
    """The old trick: HS256, with the RSA key that everyone knows as the secret."""
    return jwt.encode(GOOD, "a-secret-that-is-long-enough-to-be-one", "HS256", {"kid": "rsa"})


BAD = {
    "expired": signed({**GOOD, "exp": NOW - 60}),
    "not yet": signed({**GOOD, "nbf": NOW + LATER_S}),
    "endless": signed(without("exp")),
    "for others": signed({**GOOD, "aud": "somebody-else"}),
    "for nobody": signed(without("aud")),
    "issued elsewhere": signed({**GOOD, "iss": "https://evil.example"}),
    "about nobody": signed(without("sub")),
    "about two lines": signed({**GOOD, "sub": "a\nb"}),
    "about too much": signed({**GOOD, "sub": "a" * 257}),
    "of a stranger": signed(GOOD, STRANGER),
    "of a key not known": signed(GOOD, STRANGER, kid="other"),
    "of no key": signed(GOOD, STRANGER, kid=None),
    "unsigned": unsigned(),
    "symmetric": signed_with_the_public_key(),
    "no token": "abc",
}


@pytest.mark.parametrize("token", BAD.values(), ids=BAD)
def test_what_is_not_sound_is_refused_and_not_repeated(token):
    with pytest.raises(Unauthenticated) as caught:
        verifier().verify(token)
    assert token not in str(caught.value)


def raw(claims: str, header: str = '{"alg": "EdDSA", "kid": "ed"}') -> str:
    """Rightly signed, of JSON that no library would write."""
    parts = (base64.urlsafe_b64encode(x.encode()).rstrip(b"=") for x in (header, claims))
    said = b".".join(parts)
    return b".".join((said, base64.urlsafe_b64encode(ED.sign(said)).rstrip(b"="))).decode()


def with_time(name: str, value: str) -> str:
    times = {"exp": str(NOW + LATER_S), name: value}
    said = ", ".join(f'"{key}": {time_}' for key, time_ in times.items())
    return raw(f'{{"sub": "alice", "aud": "coordinator", "iss": "https://id.example", {said}}}')


NO_TIMES = {
    "1" + "0" * 400: "401 digits", "Infinity": "infinity", "-Infinity": "negative infinity",
    "NaN": "NaN", "1e999": "1e999", "true": "true", '"1"': "text", "[1]": "list", "{}": "object",
    f'"{NOW + LATER_S}"': "time as text", "null": "null", "1" * 5_000: "5,000 digits",
}  # fmt: skip


@pytest.mark.parametrize("name", ["exp", "nbf", "iat"])
@pytest.mark.parametrize("value", NO_TIMES, ids=NO_TIMES.values())
def test_a_time_that_is_none_is_refused(name, value):
    with pytest.raises(Unauthenticated):
        verifier().verify(with_time(name, value))


def test_a_time_may_have_a_fraction():
    assert verifier().verify(with_time("iat", f"{NOW - 5}.5")).subject == "alice"


GOOD_TEXT = json.dumps(GOOD)
ODD = {
    "a deep nest of claims": raw("[" * 3_000),
    "a deep nest in the header": raw(GOOD_TEXT, '{"a":' * 3_000),
    "a key id that is a list": raw(GOOD_TEXT, '{"alg": "EdDSA", "kid": ["ed"]}'),
    "a key id of a megabyte": raw(GOOD_TEXT, json.dumps({"alg": "EdDSA", "kid": "k" * 1_000_000})),
    "a critical header": raw(GOOD_TEXT, '{"alg": "EdDSA", "kid": "ed", "crit": ["x"], "x": 1}'),
    "an algorithm that is a list": raw(GOOD_TEXT, '{"alg": ["EdDSA"], "kid": "ed"}'),
    "an audience in lists": raw(json.dumps({**GOOD, "aud": [["coordinator"]]})),
    "a subject that is a list": raw(json.dumps({**GOOD, "sub": ["alice"]})),
    "claims that are a list": raw("[]"),
    "claims that are no JSON": raw("{"),
    "half a surrogate": raw(GOOD_TEXT.replace("alice", "\\ud800")),
    "bytes beyond ASCII": "\xe9.\xff.\x80",
    "a NUL": "\0",
    "dots": "." * 16_000,
}


@pytest.mark.parametrize("token", ODD.values(), ids=ODD)
def test_odd_tokens_are_refused_in_a_line(token):
    with pytest.raises(Unauthenticated) as caught:
        verifier().verify(token)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "text", ["", "[" * 100_000, "[]", "{}", '{"keys": []}', '{"keys": [{"kty": "?"}]}', "3"]
)
def test_a_file_without_usable_keys_is_refused(text):
    with pytest.raises(CannotSecure, match="no JWKS"):
        keys_of_text(text)
