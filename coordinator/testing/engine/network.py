"""The network of a world: a message arrives late, or never.

Hosts are known by name; a way is a pair of them. A message on a way takes a time drawn from the
seed. It is lost with the probability of the hour, or because the way is cut. Messages that carry
the same `order` arrive in the order in which they were sent, as those of one TCP connection do.

Whoever waits for a lost message sees nothing, as on a real network: its own time-out ends the wait.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from coordinator.testing.engine.process import Process
from coordinator.testing.engine.story import Story

FAST_S = (0.0002, 0.002)
SLOW_S = (0.002, 0.15)


@dataclass(slots=True)
class Weather:
    """Present faults of the network. Probabilities are per message.

    `reset`: the connection of a call breaks after the request has arrived, so that its client
    repeats a request that was carried out. `doubled`: a request arrives twice, as behind a proxy
    that repeats it.
    """

    slow: float = 0.0
    lost: float = 0.0
    reset: float = 0.0
    doubled: float = 0.0


FAIR = Weather()


@dataclass(slots=True, eq=False)
class MessageOrder:
    """Keeps messages in the order in which they were sent."""

    arrives_at: float = 0.0


@dataclass(slots=True)
class Network:
    """All ways between the hosts of a world.

    Args:
        now: seconds of the world.
        latency_s: least and most seconds that a message takes in fair weather.
    """

    now: Callable[[], float]
    dice: random.Random
    story: Story
    weather: Weather = field(default_factory=Weather)
    latency_s: tuple[float, float] = FAST_S
    delays_s: dict[frozenset[str], float] = field(default_factory=dict)
    """Seconds that each message takes longer, by way."""
    _cuts: set[frozenset[str]] = field(default_factory=set)

    def cut(self, one: str, other: str) -> None:
        """No message passes between two hosts, in either direction, until it is mended."""
        self._cuts.add(frozenset((one, other)))

    def mend(self, one: str, other: str) -> None:
        """Let messages pass again."""
        self._cuts.discard(frozenset((one, other)))

    def heal(self) -> None:
        """Mend every cut, and have fair weather from now on."""
        self._cuts.clear()
        self.weather = FAIR

    def is_cut(self, one: str, other: str) -> bool:
        """True if no message passes."""
        return bool(self._cuts) and frozenset((one, other)) in self._cuts

    def happens(self, probability: float, kind: str) -> bool:
        """True as often as the weather says; counted as a fault of that kind."""
        if probability and self.dice.random() < probability:
            self.story.count(f"fault: {kind}")
            return True
        return False

    def send(
        self,
        source: str,
        target: Process,
        to: str,
        deliver: Callable[..., None],
        *content: Any,
        order: MessageOrder | None = None,
    ) -> bool:
        """Have `deliver(*content)` called in a process, later.

        Args:
            source, to: the hosts at both ends of the way.
            target: the process that the message is for; one that is dead by then hears nothing.
        Returns:
            False if the message is lost.
        """
        weather = self.weather
        if self.is_cut(source, to) or self.happens(weather.lost, "message lost"):
            return False
        low, high = self.latency_s
        if weather.slow and self.dice.random() < weather.slow:
            low, high = SLOW_S
        delay_s = low + (high - low) * self.dice.random()
        if self.delays_s:
            delay_s += self.delays_s.get(frozenset((source, to)), 0.0)
        if order is not None:
            # By the world's clock: by its own, one that goes slow would let an earlier message,
            # which is longer on its way, come later.
            order.arrives_at = max(order.arrives_at, self.now() + delay_s)
            target.arrives_at(order.arrives_at, deliver, *content)
        else:
            target.call_later(delay_s, deliver, *content)
        return True
