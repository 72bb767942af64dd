"""Length and age of gRPC's accept queues, where calls wait for the event loop.

What gRPC does, as measured on grpcio 1.85. A call whose headers have been read waits in a queue of
gRPC's own, in memory (7-13 KiB), first come first served, until `grpc.aio` asks for the next one.
It asks for one at a time, and a call taken up costs at least 170 us, also if its client has given
up meanwhile. So a long queue feeds on itself: it makes calls late, and late calls are repeated.

Remedies:

* The calls by which members stay alive and leave have queues of their own (`OWN_QUEUE`), which
  gRPC gives to registered methods. Each time round, one call of every queue is taken up: behind
  20,000 joins a heartbeat waits for one of them, and not for all. (grpcio 1.75 does not know
  registered methods on asyncio: there all share one queue.)
* A queue is bounded. In calls, by what a core answers in a heartbeat interval
  (`max_pending_requests`), which bounds memory too. And in time: a call that has waited for
  `QUEUE_LIMIT_S` is dropped by gRPC itself and costs nothing, however little of a core there is.
  Clients see CANCELLED in both cases, and repeat the call.
* How long calls wait is estimated here, from gRPC's own count of calls (channelz) and ours: gRPC
  does not tell how old a call is that it hands over.

The count is dear on a node with many connections: 27 us for each of them (grpcio 1.85), 54 ms for
2,000 clients with a connection each, during which nothing else runs. So it is asked for less often
the more it costs, and more often while calls may be waiting.

Known weaknesses: gRPC takes the oldest call first, so under a lasting overload of heartbeats alone
the ones served are the oldest. And a queue of constant length, in which all calls wait equally
long and none is lost, shows as empty after some seconds. They wait less than `QUEUE_LIMIT_S` then.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import grpc

QUEUE_LIMIT_S = 10
"""Whole seconds. No member waits longer for the answer to a heartbeat: it has made another. Less
would cost joins, which wait for longer, where a burst of them meets a busy machine."""

OWN_QUEUE = frozenset({"FindCoordinator", "Heartbeat", "HeartbeatBatch", "LeaveGroup", "Session"})
"""Methods with a queue of their own. Only a few: each queue costs 0.5 us a call of any kind."""

SAMPLES = 4 * (QUEUE_LIMIT_S + 1)
"""Number of samples kept: at four a second, a second more than a call can wait."""


QUIET_SHARE, BUSY_SHARE = 0.005, 0.05
"""Most of the loop's time that counting may take, at rest and while calls may be waiting."""
LATE_S = 0.3
"""Seconds between two looks, of which there are four a second, that tell of a loop that is late."""
BUSY_CALLS = 100
"""Calls taken up between two looks, from which on more may be waiting."""


class Backlog:
    """Estimate of the number and age of waiting calls, from counts of calls begun and taken up.

    Calls that gRPC has dropped are among those begun, and gRPC does not count them. The difference
    of the two counts falls back to their number whenever the queue is empty, so the lowest
    difference of the last samples is the estimate.
    """

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int, int]] = deque(maxlen=SAMPLES)
        self.waiting = 0
        self.age_s = 0.0
        self.dropped = 0
        """Calls that were never taken up, at least."""

    def sample(self, now_s: float, begun: int, taken: int) -> None:
        """Add a sample of the counts.

        Args:
            now_s: seconds of any clock that does not go back.
            begun: calls whose headers gRPC has read.
            taken: calls that the event loop has taken up.
        """
        self._samples.append((now_s, begun, taken))
        lost = min(begun - taken for _, begun, taken in self._samples)
        for then_s, begun_then, _ in self._samples:
            if now_s - then_s > QUEUE_LIMIT_S:  # By now they were taken up or dropped.
                self.dropped = max(self.dropped, begun_then - taken)
        self.waiting = begun - taken - lost
        # First come, first served: the oldest came after all that were taken up or lost.
        first_s = next(
            (then_s for then_s, begun_then, _ in self._samples if begun_then > taken + lost), now_s
        )
        self.age_s = now_s - first_s


class AcceptQueue(grpc.GenericRpcHandler):
    """Counts the calls that a server takes up, and samples those that gRPC has begun.

    Has to be the server's first handler; it serves no method.

    Args:
        before: `newest_server()` before the server was made.
        cpu_s: seconds of CPU of this thread.
    """

    def __init__(self, before: int, cpu_s: Callable[[], float] = time.thread_time) -> None:
        newest = newest_server()
        self._server = newest if newest != before else 0
        self._taken = 0
        self._cpu_s = cpu_s
        self._cost_s = 0.0  # CPU of the last count.
        self._looked = (0.0, 0)  # Time of the last look, and calls taken up until then.
        self._counted_s = 0.0
        self.backlog = Backlog()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> None:
        """Count a call; another handler serves it."""
        self._taken += 1

    def oldest_s(self, now_s: float) -> float:
        """Return the estimated age of the oldest waiting call, in seconds.

        Takes a sample, unless the last one is recent for what it costs.
        """
        (looked_s, taken), self._looked = self._looked, (now_s, self._taken)
        is_busy = (
            now_s - looked_s > LATE_S
            or self._taken - taken >= BUSY_CALLS
            or self.backlog.waiting > 0
        )
        share = BUSY_SHARE if is_busy else QUIET_SHARE
        if now_s < self._counted_s + self._cost_s / share:
            return self.backlog.age_s
        began_s, self._counted_s = self._cpu_s(), now_s
        begun = _calls_begun(self._server)
        self._cost_s = self._cpu_s() - began_s
        if begun is None:
            return 0.0
        self.backlog.sample(now_s, begun, self._taken)
        return self.backlog.age_s


def newest_server() -> int:
    """Channelz id of the last server of this process; 0: none is known."""
    newest, start = 0, 0
    while True:
        page = _channelz("channelz_get_servers", start)
        for server in page.get("server", ()):
            newest = max(newest, int(server["ref"]["serverId"]))
        if page.get("end", True) or not page.get("server"):
            return newest
        start = newest + 1


def _calls_begun(server: int) -> int | None:
    data = _channelz("channelz_get_server", server).get("server", {}).get("data")
    return None if not server or data is None else int(data.get("callsStarted", 0))


def _channelz(name: str, number: int) -> dict[str, Any]:  # Any: JSON.
    """Ask gRPC's channelz; empty if it is not available."""
    # The public package, grpcio-channelz, calls the same functions.
    from grpc._cython import cygrpc  # type: ignore[attr-defined]

    ask = getattr(cygrpc, name, None)
    try:
        return dict(json.loads(ask(number))) if ask is not None else {}
    except ValueError:
        return {}
