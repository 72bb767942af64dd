"""Words that users of real clients read when a node refuses their connection or their login."""

from __future__ import annotations

import logging
import resource

import kafka
import pytest
from confluent_kafka import Consumer

from coordinator.kafka import apis
from coordinator.security.tokens import line_for, new_token
from tests.integration.waiting import wait_until
from tests.kit.kafka.client import connected
from tests.kit.serving import Process

LISTENING = ("--kafka-listen", "127.0.0.1:0")
WRONG = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "me", "sasl_plain_password": "wrong"}


class Lines(logging.Handler):
    """Keeps what is logged, as text."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += record.getMessage() + "\n"


def librdkafka_says(address: str, words: str, **settings) -> None:
    """Poll until the client has logged the words, or told of them in its callback."""
    lines = Lines()
    logger = logging.getLogger(f"{__name__}.{words}")
    logger.addHandler(lines)
    logger.propagate = False

    def told(error) -> None:
        lines.text += f"{error}\n"

    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "g", "error_cb": told, **settings},
        logger=logger,
    )
    try:
        consumer.subscribe(["t"])
        wait_until(lambda: consumer.poll(0.1) is None and words in lines.text)
    finally:
        consumer.close()


def kafka_python_says(address: str, caplog, words: str, **settings) -> None:
    def has_said() -> bool:
        with pytest.raises(kafka.errors.KafkaTimeoutError):
            kafka.KafkaConsumer(bootstrap_servers=address, bootstrap_timeout_ms=1_000, **settings)
        return words in caplog.text

    wait_until(has_said)


def test_a_node_logs_that_the_system_allows_fewer_connections_than_its_settings():
    most = 2**31 - 1
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= most:
        pytest.skip("the system allows any number of file descriptors")
    with Process(*LISTENING, "--kafka-max-connections", str(most)) as server:
        (said,) = [line["what"] for line in server.lines if line["event"] == "few_descriptors"]
    assert said.startswith(f"the system allows {hard} file descriptors")


async def test_a_client_reads_that_the_node_is_full(caplog):
    with Process(*LISTENING, "--kafka-max-connections", "1") as server:
        async with connected(server.kafka) as first:
            await first.ask(apis.LIST_GROUPS)
            librdkafka_says(server.kafka, "Throttling quota has been exceeded")
            kafka_python_says(server.kafka, caplog, "ThrottlingQuotaExceededError")
            # The first one's requests are still answered.
            assert int((await first.ask(apis.LIST_GROUPS)).error_code) == 0
        lines = [line for line in server.lines if line["event"] == "kafka_connection_refused"]
        assert [line["what"] for line in lines] == [
            "1 connections are open (kafka_max_connections)"
        ]


def test_a_client_reads_that_its_token_is_wrong_and_that_there_is_no_scram(caplog, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text(line_for("etl", new_token()) + "\n")
    with Process(*LISTENING, "--auth-tokens-file", str(tokens)) as server:
        sasl = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "me"}
        sasl["sasl.password"] = "wrong"
        words = "the token is not known: give a token that this node knows"
        librdkafka_says(server.kafka, words, **sasl, **{"sasl.mechanism": "PLAIN"})
        kafka_python_says(server.kafka, caplog, words, security_protocol="SASL_PLAINTEXT", **WRONG)
        words = "broker's supported mechanisms: PLAIN"
        librdkafka_says(server.kafka, words, **sasl, **{"sasl.mechanism": "SCRAM-SHA-256"})
        scram = {**WRONG, "sasl_mechanism": "SCRAM-SHA-256"}
        words = "UnsupportedSaslMechanismError"
        kafka_python_says(server.kafka, caplog, words, security_protocol="SASL_PLAINTEXT", **scram)
        wait_until(lambda: any("SCRAM needs a salted hash" in str(line) for line in server.lines))
