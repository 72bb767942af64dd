"""Static members that come back, clients of several languages in one group, and what is shown."""

from __future__ import annotations

import asyncio
import threading
import urllib.request

import pytest

from coordinator.assignors.consumer_protocol import decode_subscription
from coordinator.client import Member
from coordinator.operator.admin import GroupAdmin
from tests.integration.kafka.clients import (
    AIOKAFKA,
    CLIENTS,
    CONFLUENT,
    COOPERATIVE,
    JAVA,
    KAFKA_PYTHON,
    KAFKAJS,
    KCAT,
    PLATFORMATIC,
    ROUND_ROBIN,
)
from tests.integration.kafka.served import PARTITIONS, TOPIC, Served
from tests.integration.kafka.shares import wait_until_shared
from tests.integration.waiting import wait_until
from tests.kit.patience import HANG_S

pytestmark = pytest.mark.integration

STATIC = [client for client in CLIENTS if client.is_static]


@pytest.mark.parametrize("client", STATIC, ids=lambda value: value.name)
def test_a_static_member_that_comes_back_within_its_session_causes_no_rebalance(
    client, served, start
):
    group = f"static-{client.family}-{client.program}"
    a = start(client, served.kafka, group, "a", instance="one")
    b = start(client, served.kafka, group, "b", instance="two")
    wait_until_shared(a, b)
    generation, share = served.generation(group), b.owned
    b.kill()
    again = start(client, served.kafka, group, "b", instance="two")
    again.wait(lambda: again.owned == share)
    wait_until_shared(a, again)
    assert served.generation(group) == generation
    if client.commits:
        again.commit()
    rows = served.rows("groups", "members", group)
    assert {row["group_instance_id"] for row in rows} == {"one", "two"}


@pytest.mark.parametrize("client", [CONFLUENT, KCAT], ids=lambda value: value.name)
def test_librdkafka_waits_for_rows_and_does_not_ask_without_a_pause(client, served, start):
    """What it cannot ask for, in the versions that a node lists, it tries for ever, at once."""
    member = start(client, served.kafka, f"idle-{client.program}", "a")
    member.wait(lambda: member.owned)
    before = fetches(served)
    wait_until(lambda: fetches(served) > before + 1)


def fetches(served: Served) -> float:
    """Fetches of librdkafka that were answered."""
    page = urllib.request.urlopen(served.metrics(), timeout=HANG_S).read().decode()
    lines = [line for line in page.splitlines() if 'requests_total{api="Fetch"' in line]
    return sum(
        float(line.rsplit(" ")[-1]) for line in lines if "confluent" in line or "librdkafka" in line
    )


def test_platformatic_does_not_stay_with_its_own_retries(served, start):
    """The page says so, for as long as topics have no ids. It retries 3 times by default."""
    member = start(PLATFORMATIC, served.kafka, "impatient", "a", more={})
    member.wait(lambda: member.owned)
    wait_until(lambda: any("stream fetch failed 4 times" in line for line in member.log))


class OurMember:
    """A member of this project's library, over gRPC, as a thread."""

    def __init__(self, served: Served, group: str) -> None:
        self.owned: set = set()
        self._served, self._group = served, group
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> OurMember:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def check(self) -> None:
        assert self._thread.is_alive(), "our own member has ended"

    def tail(self) -> str:
        return ""

    def leave(self) -> None:
        self._stop.set()
        self._thread.join(HANG_S)

    async def _run(self) -> None:
        settings = {"client_id": "ours", "assignors": (COOPERATIVE,), "session_timeout_ms": 30_000}
        member = Member(self._served.address, self._group, {TOPIC: PARTITIONS}, **settings)
        async with member:
            while not self._stop.is_set():
                await member.poll(timeout=0.1)
                self.owned = {(each.topic, each.partition) for each in member.assignment}


@pytest.mark.parametrize("others", [(), (JAVA,)], ids=["python", "java"])
def test_one_group_of_grpc_and_kafka_clients_shares_cooperatively(served, start, others):
    group = f"mixed-{len(others)}"
    members = [
        start(client, served.kafka, group, client.family + str(number), assignor=COOPERATIVE)
        for number, client in enumerate((CONFLUENT, KAFKA_PYTHON, *others))
    ]
    with OurMember(served, group) as ours:
        wait_until_shared(ours, *members)
        with GroupAdmin(served.address) as admin:
            described = admin.describe_group(group)
        assert (described.protocol_type, described.protocol_data) == ("consumer", COOPERATIVE)
        for member in described.members:
            assert set(decode_subscription(member.member_metadata).topics) == {TOPIC}
    wait_until_shared(*members)
    members[0].kill()


def test_kafkajs_shares_a_group_with_others_by_an_assigner_of_its_own(served, start):
    group = "round-robins"
    clients = (KAFKAJS, CONFLUENT, AIOKAFKA)
    members = [
        start(client, served.kafka, group, str(number), assignor=ROUND_ROBIN)
        for number, client in enumerate(clients)
    ]
    wait_until_shared(*members)
    members[1].leave()
    wait_until_shared(members[0], members[2])
