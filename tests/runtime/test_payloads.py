"""What is remembered of consumers' payloads has a bound in bytes."""

from __future__ import annotations

import sys

from coordinator.assignors.consumer_protocol import (
    Subscription,
    encode_subscription,
)
from coordinator.runtime.payloads import REMEMBERED_BYTES, read_topics


def subscription(topic: str) -> bytes:
    return encode_subscription(Subscription(topics=(topic,)))


def test_a_short_payload_is_kept_and_a_long_one_is_let_go_of():
    short, long = subscription("t"), subscription("t" * REMEMBERED_BYTES)
    before = sys.getrefcount(short), sys.getrefcount(long)
    assert read_topics(short) == {"t"}
    assert read_topics(long) == {"t" * REMEMBERED_BYTES}
    assert sys.getrefcount(short) > before[0]
    assert sys.getrefcount(long) == before[1]
