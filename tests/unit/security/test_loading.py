"""Settings that expose a node or contradict each other are refused. No file is read."""

import pytest

from coordinator.security.errors import CannotSecure
from coordinator.security.loading import exposed, load
from coordinator.security.tls import Material
from coordinator.settings import Settings
from coordinator.settings.sections import KafkaConfig, SecurityConfig, ServingConfig

QUIET = {"metrics_listen": "", "console_listen": ""}
TLS = {"tls_cert_file": "c.pem", "tls_key_file": "k.pem"}
MUTUAL = {**TLS, "tls_client_ca_file": "ca.pem"}
HTTP_KEYS = {"auth_jwks": "http://id.example/keys", "auth_jwt_audience": "a"}

EXPOSED = [
    ({}, []),
    ({"listen": "localhost:1", "metrics_listen": "[::1]:1", "console_listen": "127.9.9.9:1"}, []),
    ({**QUIET, "listen": "0.0.0.0:1"}, ["plain text"]),
    ({**QUIET, "listen": "[::]:1"}, ["plain text"]),
    ({**QUIET, "listen": "node-1.example:1"}, ["plain text"]),
    ({**QUIET, "listen": "0.0.0.0:1", **TLS}, []),
    ({"kafka_listen": "10.0.0.1:9092"}, ["kafka_listen 10.0.0.1:9092 is served in plain text"]),
    ({"kafka_listen": "0.0.0.0:9092", "kafka_advertise": "node-1:9092"}, ["plain text"]),
    ({"kafka_listen": "10.0.0.1:9092", **TLS}, []),
    ({"kafka_listen": "127.0.0.1:9092", "kafka_advertise": "node-1:9092"}, []),
    ({"metrics_listen": "0.0.0.0:1"}, ["plain text", "to anyone"]),
    ({"metrics_listen": "0.0.0.0:1", **TLS}, ["to anyone"]),
    ({"console_listen": "0.0.0.0:1", "auth_tokens_file": "t"}, ["plain text"]),
    ({"metrics_listen": "0.0.0.0:1", "console_listen": "0.0.0.0:1", **MUTUAL}, []),
    (HTTP_KEYS, ["keys of auth_jwks are fetched in plain text"]),
    ({**HTTP_KEYS, "auth_jwks": "https://id.example/keys"}, []),
    ({**HTTP_KEYS, "auth_jwks": "http://127.0.0.1:80/keys"}, []),
]


def sections(**values) -> tuple[SecurityConfig, ServingConfig, KafkaConfig]:
    settings = Settings.of(**values)
    return settings.security, settings.serving, settings.kafka


@pytest.mark.parametrize(("settings", "words"), EXPOSED)
def test_what_is_open_beyond_this_machine_is_named_and_refused(settings, words):
    exposure = exposed(*sections(**settings))
    assert len(exposure) == len(words)
    assert all(word in text for word, text in zip(words, exposure, strict=True))
    if words:
        with pytest.raises(CannotSecure, match="--insecure if nobody else"):
            load(*sections(**settings))


def test_insecure_lets_it_be():
    security = load(*sections(listen="0.0.0.0:1", metrics_listen="0.0.0.0:2", insecure=True))
    assert security.tls is None
    assert security.guard is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tls_cert_file": "c"}, "tls_key_file is not"),
        ({"tls_key_file": "k"}, "tls_cert_file is not"),
        ({"tls_client_ca_file": "ca"}, "tls_cert_file is not"),
        ({"auth_jwks": "keys.json"}, "auth_jwt_audience is not"),
        ({"auth_rules_file": "r"}, "nothing that tells who calls"),
        ({"auth_tokens_file": "not/there"}, "cannot read not/there"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, said):
    with pytest.raises(CannotSecure, match=said):
        load(*sections(**settings))


def test_a_node_shows_others_its_certificate_and_its_token():
    shown = load(*sections(insecure=True, auth_peer_token_file="t")).credentials()
    assert (shown.token_file, shown.is_tls, shown.insecure) == ("t", False, True)


@pytest.mark.parametrize(
    ("host", "is_for"),
    [
        ("node-1.example", True),
        ("NODE-1.example", True),
        ("a.groups.example", True),
        ("groups.example", False),
        ("a.b.groups.example", False),
        ("10.0.0.1", True),
        ("[::1]", True),
        ("10.0.0.2", False),
    ],
)
def test_a_certificate_is_for_the_hosts_it_names(host, is_for):
    hosts = ("node-1.example", "*.groups.example", "10.0.0.1", "::1")
    assert Material(b"", b"", None, 0.0, hosts).is_for(host) is is_for
