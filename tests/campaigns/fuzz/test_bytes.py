"""Decoders bear any bytes from outside: each accepts exactly its documented errors, and what holds
of anything that was understood is checked.

`python -m tests.campaigns.fuzz NAME` runs one for long, guided by coverage.
"""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import settings as profile
from hypothesis import strategies as st

from coordinator.v1 import session_pb2
from tests.campaigns.fuzz import (
    consumer_protocol,
    corpus,
    kafka_bodies,
    kafka_connections,
    log_records,
    pages,
    requests,
    session_messages,
    web_tokens,
)
from tests.campaigns.fuzz.messages import messages
from tests.campaigns.fuzz.mutate import near

EXAMPLES = 1_000


def written_requests():
    """Requests as bytes, after the number of their kind."""
    return st.one_of(
        messages(kind.DESCRIPTOR).map(
            lambda message, number=number: bytes([number]) + message.SerializeToString()
        )
        for number, kind in enumerate(requests.KINDS)
    )


def written_session_messages():
    return messages(session_pb2.SessionRequest.DESCRIPTOR).map(lambda m: m.SerializeToString())


def bears(decoder, inputs, share=1.0):
    """A test of a decoder: with what is kept for it, and with other inputs."""

    def test(data):
        decoder.target(data)

    name = decoder.__name__.rpartition(".")[2]
    test.__name__ = test.__qualname__ = f"test_{name}"
    for kept in corpus.read(name):
        test = example(kept)(test)
    return profile(max_examples=int(share * EXAMPLES))(given(inputs)(test))


test_consumer_protocol = bears(consumer_protocol, near(consumer_protocol.seeds()))
test_log_records = bears(log_records, near(log_records.seeds()))
test_requests = bears(requests, near(corpus.read("requests")) | written_requests())
test_session_messages = bears(session_messages, written_session_messages(), share=0.5)
test_kafka_bodies = bears(kafka_bodies, near(kafka_bodies.seeds()))
test_kafka_connections = bears(kafka_connections, near(kafka_connections.seeds()), share=0.3)
test_pages = bears(pages, near(pages.seeds()), share=0.5)
test_web_tokens = bears(web_tokens, near(web_tokens.seeds()))
