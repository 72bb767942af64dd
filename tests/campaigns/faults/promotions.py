"""Stores that lose commits, under nodes with a classic and a session group.

    python -m tests.campaigns.faults.promotions [ROUNDS]              a standby lacks commits
    python -m tests.campaigns.faults.promotions --put-back [ROUNDS]   an older copy is put back

In each round members come and go, so tokens and generations are issued that only the primary has:
its standby is down, or the copy was made before. Then the primary dies, the standby is promoted or
the copy put back (and written to until its log is longer than the lost one), and everybody goes on.
A token or a generation that is handed out on both sides is a violation, and so is a group that does
not come to hold all its partitions again. The exit status is 0 if there was none.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import subprocess
import sys
import time
from collections import defaultdict

import psycopg

from coordinator.client import Granted, Member, Revoking
from tests.campaigns.faults.stores import Postgres
from tests.integration.groups import eventually
from tests.integration.nodes import Nodes
from tests.kit.patience import HANG_S

ROUNDS = 300
PARTITIONS, MEMBERS = 6, 3
LOST_CHANGES = 3
"""Changes of members that the standby does not know. After a load a group skips one generation in
any case, so a single one would show nothing."""
SETTINGS = {
    "classic": {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 300},
    "session": {"wishes": {"lease_ms": 2_000, "join_quiet_ms": 0, "initial_delay_ms": 0}},
}
"""Settings of members, by protocol."""


class Issued:
    """Numbers that members were handed out, and to whom."""

    def __init__(self) -> None:
        self.tokens: dict[int, tuple[str, str]] = {}
        self.owners: dict[tuple[int, str], str] = {}
        self.violations: list[str] = []
        self.count = 0

    def note(self, who: str, event: Granted) -> None:
        """Note what was granted; each token, and each generation's partition, has one owner."""
        for holding in event.holdings:
            partition = str(holding.partition)
            if holding.token:
                owner = self.tokens.setdefault(holding.token, (who, partition))
                self._check(owner == (who, partition), f"token {holding.token}: {owner}, {who}")
            else:
                key = (holding.generation, partition)
                owner = self.owners.setdefault(key, who)
                self._check(owner == who, f"generation {key}: {owner}, {who}")
            self.count += 1

    def _check(self, holds: bool, words: str) -> None:
        if not holds:
            self.violations.append(words)


class Group:
    """Members of one group, which come and go; each has a task that hears its events."""

    def __init__(self, protocol: str, addresses: list[str], issued: Issued) -> None:
        self.protocol = protocol
        self._addresses = addresses
        self._issued = issued
        self._names = (f"{protocol}-{number}" for number in itertools.count(1))
        self._tasks: dict[Member, asyncio.Task] = {}

    async def add(self) -> None:
        """One more member."""
        member = Member(
            self._addresses, f"the-{self.protocol}", {"t": PARTITIONS},
            protocol=self.protocol, **SETTINGS[self.protocol],
        )  # fmt: skip
        await member.start()
        self._tasks[member] = asyncio.create_task(self._receive(member, next(self._names)))

    async def remove(self) -> None:
        """The oldest member leaves."""
        member, task = next(iter(self._tasks.items()))
        del self._tasks[member]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await member.close()

    @property
    def holds_all(self) -> bool:
        """True if each partition has one owner that may work on it."""
        owned = [p for member in self._tasks for p in member.assignment if member.valid(p)]
        return len(owned) == len(set(owned)) == PARTITIONS

    async def close(self) -> None:
        while self._tasks:
            await self.remove()

    async def _receive(self, member: Member, name: str) -> None:
        async for event in member.events():
            if isinstance(event, Granted):
                self._issued.note(name, event)
            elif isinstance(event, Revoking) and self.protocol == "session":
                for holding in event.holdings:
                    await member.released(holding)


class Promotions:
    """A primary and its standby by turns."""

    def __init__(self, server: Postgres) -> None:
        self.server = server
        self.names = ["primary", "standby"]
        server.add_standby("standby")

    @property
    def url(self) -> str:
        return self.server.url(*self.names)

    def prepare(self) -> None:
        """Stop the standby: the primary alone has what is acknowledged from then on."""
        if self.names[1] not in self.server.processes:  # After the first round.
            self.server.add_standby(self.names[1], of=self.names[0])
        self.server.kill(self.names[1])

    def lose(self) -> None:
        """The primary dies, and the standby takes over as it is."""
        old, new = self.names
        self.server.kill(old)
        self.server.start(new)
        self.server.promote(new)
        shutil.rmtree(self.server.folder / old)
        self.names = [new, old]


class PutBacks:
    """A server whose folder is put back to an earlier state, behind the nodes' backs."""

    def __init__(self, server: Postgres) -> None:
        self.server = server
        self.url = server.url("primary")
        self._folder, self._copy = server.folder / "primary", server.folder / "copy"

    def prepare(self) -> None:
        """Make the copy."""
        self.server.kill("primary")
        subprocess.run(["cp", "-a", self._folder, self._copy], check=True)
        self.server.start("primary")

    def lose(self) -> None:
        """Put the copy back, and write to it until it is further than the server was."""
        flushed = self._flushed()
        self.server.kill("primary")
        shutil.rmtree(self._folder)
        self._copy.rename(self._folder)
        port = self.server.ports.pop("primary")
        self.server.start("primary")  # On another port: the nodes do not see it yet.
        while self._flushed() <= flushed:
            self._ask("SELECT pg_switch_wal()")
            self._ask("CREATE TABLE IF NOT EXISTS more AS SELECT generate_series(1, 60000)")
        self.server.kill("primary")
        self.server.ports["primary"] = port
        self.server.start("primary")

    def _flushed(self) -> int:
        return int(self._ask("SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')"))

    def _ask(self, query: str):
        url = self.server.url("primary", cluster="")
        with psycopg.connect(url, autocommit=True) as connection:
            rows = connection.execute(query)
            return rows.fetchone()[0] if rows.description else None


async def play(
    rounds: int, kind: type[Promotions | PutBacks] = Promotions
) -> tuple[Issued, dict[str, list[float]]]:
    """Play so many losses; numbers that were handed out, and the seconds of each recovery.

    Raises:
        TimeoutError: a group did not come to hold all its partitions.
    """
    issued, took = Issued(), defaultdict(list)
    async with contextlib.AsyncExitStack() as stack:
        server = stack.enter_context(Postgres())
        losses = kind(server)
        nodes = Nodes(losses.url)
        stack.callback(nodes.kill_all)
        for number in (1, 2):
            await nodes.start(number)
        groups = [Group(protocol, nodes.addresses, issued) for protocol in SETTINGS]
        for group in groups:
            stack.push_async_callback(group.close)
            for _ in range(MEMBERS):
                await group.add()
        for number in range(rounds):
            await eventually(lambda: all(group.holds_all for group in groups))
            await asyncio.to_thread(losses.prepare)
            for _ in range(LOST_CHANGES):
                before = issued.count
                for group in groups:
                    await group.add()
                    await group.remove()
                await eventually(lambda: all(group.holds_all for group in groups))
                assert issued.count > before, "nothing was issued that the standby lacks"
            await asyncio.to_thread(losses.lose)
            began = time.monotonic()
            for group in groups:
                await group.add()
                await group.remove()
            async with asyncio.timeout(HANG_S):
                await eventually(lambda: all(group.holds_all for group in groups))
            took["all held again, s"].append(time.monotonic() - began)
            print(f"{number + 1}: {issued.count} handed out, {took['all held again, s'][-1]:.1f} s")
    return issued, took


def main() -> int:
    kind = PutBacks if "--put-back" in sys.argv else Promotions
    rounds = next((int(word) for word in sys.argv[1:] if word.isdigit()), ROUNDS)
    issued, took = asyncio.run(play(rounds, kind))
    longest = max(took["all held again, s"])
    for violation in issued.violations:
        print(f"VIOLATION {violation}")
    print(
        f"{rounds} {kind.__name__}, {len(issued.tokens)} tokens, "
        f"{len(issued.owners)} of generations, {len(issued.violations)} issued twice, "
        f"longest recovery {longest:.1f} s"
    )
    return 1 if issued.violations else 0


if __name__ == "__main__":
    sys.exit(main())
