"""JSON web tokens. `s`: header and claims, a line each, rightly signed by us; else the token."""

import base64
import json
import math

from cryptography.hazmat.primitives.asymmetric import ed25519
from jwt.algorithms import OKPAlgorithm

from coordinator.security.authenticator import Authenticator
from coordinator.security.errors import Unauthenticated
from coordinator.security.jwt import JwtVerifier, keys_of_text

KEY = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32))
JWKS = {**json.loads(OKPAlgorithm.to_jwk(KEY.public_key())), "kid": "k", "alg": "EdDSA"}
VERIFIER = JwtVerifier(
    keys_of_text(json.dumps({"keys": [JWKS]})), audience="groups", issuer="", claim="sub"
)
FAR = 2**40
"""Seconds since the epoch: after everything that is tested."""


def _part(content: bytes) -> bytes:
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def signed(header: bytes, claims: bytes) -> str:
    """A token whose signature is right, whatever it says."""
    said = b".".join((_part(header), _part(claims)))
    return b".".join((said, _part(KEY.sign(said)))).decode()


def target(data: bytes) -> None:
    kind, rest = data[:1], data[1:]
    if kind == b"s":
        header, _, claims = rest.partition(b"\n")
        token = signed(header, claims)
    else:
        token = rest.decode("latin-1")
    try:
        caller = Authenticator(jwt=VERIFIER).of_token(token)
    except Unauthenticated:
        return
    assert caller.principal.isprintable()
    assert math.isfinite(caller.until_s)


def claims(**more: object) -> bytes:
    return json.dumps({"sub": "alice", "aud": "groups", "exp": FAR, **more}).encode()


def seeds():
    header = b's{"alg": "EdDSA", "kid": "k"}\n'
    yield header + claims()
    yield header + claims(aud=["others", "groups"], nbf=1, iat=1.5)
    yield header + claims(exp="1", nbf=True, iat=[1])
    yield header + claims(aud=[["groups"]], sub=3)
    yield b's{"alg": "EdDSA", "kid": ["k"], "crit": ["b64"], "b64": false}\n' + claims()
    yield b's{"alg": "none"}\n' + claims()
    yield b"r" + signed(b'{"alg": "EdDSA", "kid": "k"}', claims()).encode()
