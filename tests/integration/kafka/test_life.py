"""The life of a group of each of Kafka's clients, with each of its assignors.

A member alone, a second one, which is killed, a third one, a restart of the coordinator, the third
one leaves. All groups live at the same time, because most of it is waiting; each has its test.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from coordinator.operator import GroupNotFound
from tests.integration.kafka.clients import CLIENTS, SESSION_MS, SHORT_SESSION_MS, Client, Member
from tests.integration.kafka.served import Served
from tests.integration.kafka.shares import wait_until_shared
from tests.integration.waiting import wait_until

pytestmark = pytest.mark.integration

LIVES = [(client, assignor) for client in CLIENTS for assignor in client.assignors]
AT_ONCE = 5
"""Steps that are taken at one time: each starts a process."""
BY_ITSELF = {"leader_rejoined", "metadata_changed"}
"""Causes of rebalances that a leader begins by joining again."""


@dataclass
class Life:
    """A group of one client with one assignor, and how far it has come."""

    client: Client
    assignor: str
    group: str
    served: Served
    start: Callable[..., Member]
    error: BaseException | None = None
    members: list[Member] = field(default_factory=list)
    generation: int = 0
    changes: list[int] = field(default_factory=list)
    committed: dict = field(default_factory=dict)

    def join(self, session_ms: int = SESSION_MS) -> Member:
        number = len(self.members) + 1
        client_id = f"{'abc'[number - 1]}-{self.group}"
        member = self.start(
            self.client,
            self.served.kafka,
            self.group,
            client_id,
            assignor=self.assignor,
            session_ms=session_ms,
        )
        self.members.append(member)
        return member

    # --- Steps ---

    def alone(self) -> None:
        wait_until_shared(self.join())

    def second_joins(self) -> None:
        a, b = self.members[0], self.join(SHORT_SESSION_MS)
        wait_until_shared(a, b)
        if self.client.commits:
            self.committed = a.commit() | b.commit()

    def second_is_killed(self) -> None:
        self.members[1].kill()
        wait_until_shared(self.members[0])

    def third_joins(self) -> None:
        wait_until_shared(self.members[0], self.join())
        self.generation = self.served.generation(self.group)
        self.changes = [member.changes for member in self.members]

    def survives_the_restart(self) -> None:
        if self.client.commits:
            for member in (self.members[0], self.members[2]):
                member.commit()
        begun = self.served.generation(self.group) - self.generation
        causes = {code for code, _ in self.served.causes(self.group)[:begun]}
        assert causes <= (BY_ITSELF if self.client.rejoins else set())
        if begun:
            wait_until_shared(self.members[0], self.members[2])
        else:
            assert [member.changes for member in self.members] == self.changes

    def third_leaves(self) -> None:
        self.members[2].leave()
        wait_until_shared(self.members[0])
        left = "member_left", self.members[2].client_id
        wait_until(lambda: left in self.served.causes(self.group))

    def is_back(self) -> None:
        wait_until_shared(self.members[0])
        if self.client.commits:
            self.members[0].commit()

    def take(self, step: Callable[[Life], object]) -> None:
        """A step, unless an earlier one has failed."""
        if self.error is None:
            try:
                step(self)
            except BaseException as error:  # noqa: BLE001  # Raised by the life's own test.
                self.error = error


@pytest.fixture(scope="module")
def lives(served: Served, built: Callable, starter: Callable) -> Iterator[dict[tuple, Life]]:
    """All lives, lived to their ends."""
    with starter() as start:
        yield live(served, built, start)


def live(served: Served, built: Callable, start: Callable[..., Member]) -> dict[tuple, Life]:
    found = {}
    for number, (client, assignor) in enumerate(LIVES):
        group = f"life-{number}-{client.family}-{assignor}"
        life = found[client.name, assignor] = Life(client, assignor, group, served, start)
        life.take(lambda life: built(life.client))  # Not in a thread: it may make fixtures.
    with ThreadPoolExecutor(AT_ONCE) as pool:

        def all_take(step: Callable[[Life], object]) -> None:
            list(pool.map(lambda life: life.take(step), found.values()))

        all_take(Life.alone)
        all_take(Life.second_joins)
        all_take(Life.second_is_killed)
        all_take(Life.third_joins)
        all_take(lambda life: life.client.survives or life.third_leaves())
        served.kill_and_start()
        all_take(lambda life: life.client.survives and life.survives_the_restart())
        all_take(lambda life: life.client.survives and life.third_leaves())
        all_take(lambda life: life.client.returns and life.is_back())
    return found


@pytest.mark.parametrize(
    ("client", "assignor"), LIVES, ids=lambda value: value if isinstance(value, str) else value.name
)
def test_partitions_have_one_owner_through_the_whole_life_of_a_group(
    lives, built, served, client, assignor
):
    built(client)
    life = lives[client.name, assignor]
    if life.error is not None:
        with contextlib.suppress(GroupNotFound):
            life.error.add_note(served.journal(life.group))
        raise life.error
    a, b, c = (member.client_id for member in life.members)
    causes = served.causes(life.group)
    assert {("member_joined", b), ("session_expired", b), ("member_left", c)} <= set(causes), (
        served.journal(life.group)
    )
    if client.commits:
        assert served.offsets(life.group) == life.committed
        described = served.rows("groups", "describe", life.group)
        stored = {(row["topic"], row["partition"]): row["current_offset"] for row in described}
        stored.pop((None, None), None)  # A member that has none.
        assert stored == life.committed
    if client.returns:
        owners = {row["client_id"] for row in served.rows("groups", "members", life.group)}
        assert owners == {a}
