"""One file for each decoder, and what share of a campaign it gets.

A target is `target(data)`: it hands the bytes to a decoder, lets exactly the documented errors
pass, and checks what holds of anything that was understood. `seeds()` gives inputs that are
right, for the engines to start from.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass

SHARES = {
    "consumer_protocol": 18,
    "entries": 12,
    "records": 13,
    "requests": 16,
    "settings": 5,
    "recordings": 4,
    "locations": 4,
    "files": 2,
    "store_metadata": 4,
    "slow_messages": 1,
    "pages": 3,
    "web_tokens": 3,
    "kafka_frames": 6,
    "kafka_bodies": 7,
    "kafka_connections": 2,
}
"""Per cent of the executions. The fast and the exposed get more; a file costs a write each, and a
slow message is a large one."""


@dataclass(frozen=True)
class Target:
    """A loaded target."""

    name: str
    target: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]


def load(name: str) -> Target:
    """Import a target, and with it what it tests: an engine may want to be there first."""
    module = importlib.import_module(f"{__name__}.{name}")
    return Target(name, module.target, module.seeds)
