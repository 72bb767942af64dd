"""Kafka's connections at a real server: who is let in, for how long, and what is said."""

from __future__ import annotations

import asyncio
import json
import ssl
import time

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm

from coordinator.kafka import apis
from coordinator.security.tokens import new_token
from tests.integration.waiting import until
from tests.kit.auth_files import AuthFiles, rule
from tests.kit.certificates import Authority, replace
from tests.kit.kafka.client import connected
from tests.kit.patience import HANG_S
from tests.kit.serving import running

FAILED, UNSUPPORTED, ILLEGAL_STATE = 58, 33, 34


class KafkaAuthFiles(AuthFiles):
    """With keys of JSON web tokens, on a node with a listener for Kafka's clients."""

    def __init__(self, folder) -> None:
        super().__init__(folder)
        self._key = ec.generate_private_key(ec.SECP256R1())
        jwk = ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        self.settings |= {
            "kafka_listen": "127.0.0.1:0",
            "auth_jwks": str(folder / "jwks.json"),
            "auth_jwt_audience": "groups",
        }
        replace(self.settings["auth_jwks"], json.dumps({"keys": [{**jwk, "kid": "k"}]}))
        self.token("etl"), self.token("op")
        self.allow()

    def allow(self, *more: str) -> None:
        self.rules(rule("token:op", "*", "*"), rule("jwt:*", "join", "jobs"), *more)

    def jwt(self, subject: str = "alice", lasts_s: float = 3_600) -> str:
        claims = {"sub": subject, "aud": "groups", "exp": time.time() + lasts_s}
        return jwt.encode(claims, self._key, algorithm="ES256", headers={"kid": "k"})


@pytest.fixture
def files(tmp_path):
    return KafkaAuthFiles(tmp_path)


def reloads(server) -> list[str]:
    """Names of the files that the server reads again from now on."""
    names: list[str] = []
    server.security.on_reload = names.append
    return names


async def asked_again_and_again(client) -> None:
    async with asyncio.timeout(HANG_S):
        while True:
            await client.ask(apis.LIST_GROUPS)
            await asyncio.sleep(0.02)


ETL = rule("token:etl", "join commit", "jobs")


async def test_a_token_as_the_password_joins_and_rules_hold(files):
    files.allow(ETL)
    async with running(**files.settings) as server, connected(server.kafka) as client:
        told = await client.plain(files.tokens["etl"], user="whoever")
        assert (int(told.error_code), told.error_message) == (0, None)
        assert told.session_lifetime.total_seconds() == 0
        joined = await client.join("jobs")
        assert int(joined.error_code) == 0
        assert int((await client.join("other")).error_code) == 30
        reply = await client.ask(apis.OFFSET_FETCH, 5, group_id="other", topics=None)
        assert int(reply.error_code) == 30
        assert [refusal.rule for refusal in server.refused] == ["none: denied by default"] * 2
        assert {refusal.where for refusal in server.refused} == {
            "Kafka JoinGroup",
            "Kafka OffsetFetch",
        }
        listed = await client.ask(apis.LIST_GROUPS)
        assert listed.groups == ()
    assert all(files.tokens["etl"] not in repr(refusal) for refusal in server.refused)


async def test_lists_show_what_the_caller_may_read(files):
    files.allow(ETL, rule("token:etl", "read", "jobs"))
    async with running(**files.settings) as server:
        async with connected(server.kafka) as client, connected(server.kafka) as operator:
            await operator.plain(files.tokens["op"])
            for group in ("jobs", "secret"):
                assert int((await operator.join(group)).error_code) == 0
            await client.plain(files.tokens["etl"])
            shown = {listed.group_id for listed in (await client.ask(apis.LIST_GROUPS)).groups}
            assert shown == {"jobs"}
            shown = {listed.group_id for listed in (await operator.ask(apis.LIST_GROUPS)).groups}
            assert shown == {"jobs", "secret"}
            described = await client.ask(apis.DESCRIBE_GROUPS, groups=["jobs", "secret"])
            codes = {listed.group_id: int(listed.error_code) for listed in described.groups}
            assert codes == {"jobs": 0, "secret": 30}
            deleted = await client.ask(apis.DELETE_GROUPS, groups_names=["jobs"])
            assert [int(result.error_code) for result in deleted.results] == [30]


async def test_a_json_web_token_has_a_session_and_authenticates_again(files):
    async with running(**files.settings) as server, connected(server.kafka) as client:
        told = await client.oauth(files.jwt(lasts_s=100))
        assert int(told.error_code) == 0
        assert 50 < told.session_lifetime.total_seconds() <= 100
        assert int((await client.join("jobs")).error_code) == 0
        again = await client.oauth(files.jwt(lasts_s=1_000))
        assert 900 < again.session_lifetime.total_seconds() <= 1_000
        assert int((await client.ask(apis.LIST_GROUPS)).error_code) == 0
        # As somebody else: not on this connection.
        other = await client.oauth(files.jwt("bob"))
        assert int(other.error_code) == FAILED
        assert "jwt:alice" in other.error_message
        assert await client.is_closed()


async def test_a_wrong_token_is_refused_in_words(files):
    async with running(**files.settings) as server:
        for token, oauth in ((new_token(), False), ("a.b.c", True), (files.jwt(lasts_s=-99), True)):
            async with connected(server.kafka) as client:
                told = await (client.oauth(token) if oauth else client.plain(token))
                assert int(told.error_code) == FAILED
                assert "token" in told.error_message
                assert told.auth_bytes == (b'{"status":"invalid_token"}' if oauth else b"")
                assert await client.is_closed()
        assert {refusal.reason for refusal in server.refused} == {"unauthenticated"}


async def test_a_token_that_is_taken_away_ends_its_connections(files):
    files.allow(ETL)
    async with running(**files.settings) as server:
        async with connected(server.kafka) as client, connected(server.kafka) as operator:
            await client.plain(files.tokens["etl"])
            await operator.plain(files.tokens["op"])
            joined = await client.join("jobs")
            beat = {"group_id": "jobs", "member_id": joined.member_id, "generation_id": 1}
            assert int((await client.ask(apis.HEARTBEAT, **beat)).error_code) in (0, 27)
            reloaded = reloads(server)
            files.revoke("etl")
            await until(lambda: "tokens and keys" in reloaded)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.ask(apis.HEARTBEAT, **beat)
            assert int((await operator.ask(apis.LIST_GROUPS)).error_code) == 0
        async with connected(server.kafka) as client:
            assert int((await client.plain(files.tokens["etl"])).error_code) == FAILED


async def test_a_rule_that_is_taken_away_holds_for_open_connections(files):
    files.allow(ETL)
    async with running(**files.settings) as server, connected(server.kafka) as client:
        await client.plain(files.tokens["etl"])
        joined = await client.join("jobs")
        beat = {"group_id": "jobs", "member_id": joined.member_id, "generation_id": 1}
        reloaded = reloads(server)
        files.allow()
        await until(lambda: "rules" in reloaded)
        assert int((await client.ask(apis.HEARTBEAT, **beat)).error_code) == 30


async def test_a_node_that_asks_nobody_does_not_take_a_password():
    async with running(kafka_listen="127.0.0.1:0") as server, connected(server.kafka) as client:
        told = await client.ask(apis.SASL_HANDSHAKE, mechanism="PLAIN")
        assert (int(told.error_code), told.mechanisms) == (ILLEGAL_STATE, ())
        told = await client.ask(apis.SASL_AUTHENTICATE, auth_bytes=b"\0me\0secret")
        assert int(told.error_code) == ILLEGAL_STATE
        assert "without SASL" in told.error_message


# --- TLS ---


@pytest.fixture
def ca(tmp_path):
    return Authority(tmp_path / "tls")


def trusting(ca: Authority, certificate=None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca.file)
    if certificate is not None:
        context.load_cert_chain(*certificate)
    return context


async def test_a_certificate_names_the_caller(ca, tmp_path):
    rules = tmp_path / "rules.toml"
    replace(rules, rule("cert:worker-*", "join", "jobs"))
    cert, key = ca.issue("node")
    settings = {
        "kafka_listen": "127.0.0.1:0", "tls_cert_file": cert, "tls_key_file": key,
        "tls_client_ca_file": ca.file, "auth_rules_file": str(rules),
    }  # fmt: skip
    async with running(**settings) as server:
        worker = trusting(ca, ca.issue("worker-1"))
        async with connected(server.kafka, worker) as client:
            assert int((await client.join("jobs")).error_code) == 0
            assert int((await client.join("other")).error_code) == 30
            assert {refusal.principal for refusal in server.refused} == {"cert:worker-1"}
        with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
            async with connected(server.kafka, trusting(ca)) as client:
                await client.ask(apis.METADATA, topics=None)
        await until(lambda: any("TLS handshake" in what for _, _, what in server.malformed))


async def test_new_connections_get_the_new_certificate(ca):
    cert, key = ca.issue("node")
    settings = {"kafka_listen": "127.0.0.1:0", "tls_cert_file": cert, "tls_key_file": key}

    async def serial() -> bytes:
        async with connected(server.kafka, trusting(ca)) as client:
            return client.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)

    async with running(**settings) as server:
        async with connected(server.kafka, trusting(ca)) as kept:
            before = await serial()
            reloaded = reloads(server)
            ca.issue("node")
            await until(lambda: "certificate" in reloaded)
            assert await serial() != before
            assert int((await kept.join("jobs")).error_code) == 0
