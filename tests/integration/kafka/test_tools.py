"""Kafka's admin clients, an exporter of lag and a terminal UI on groups of this coordinator."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request

import confluent_kafka.admin as confluent
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as PythonPartition

from coordinator.assignors import TopicPartition as OurPartition
from coordinator.operator import GroupAdmin, GroupNotFound
from tests.integration.kafka import fetch
from tests.integration.kafka.clients import CONFLUENT, JAVA
from tests.integration.kafka.served import EVERYTHING, PARTITIONS, Served
from tests.kit.patience import HANG_S

pytestmark = pytest.mark.integration

EXPORTER_PORT = 8000
"""kafka-overwatch listens there, whatever its configuration says."""


@pytest.fixture(scope="module")
def alive(served: Served, starter) -> str:
    """A group of one static member, `one`, which has committed."""
    with starter() as start:
        member = start(CONFLUENT, served.kafka, "alive", "a", instance="one")
        member.wait(lambda: member.owned == EVERYTHING)
        member.commit()
        yield "alive"


@pytest.fixture
def empty(served: Served) -> str:
    """A group without members that has offsets."""
    with GroupAdmin(served.address) as admin:
        admin.commit("empty", {OurPartition("rows", 0): 5})
        yield "empty"
        if any(group.group_id == "empty" for group in admin.list_groups()):
            admin.delete_group("empty")


def test_confluents_admin_client_lists_describes_and_changes_groups(served, alive, empty):
    admin = confluent.AdminClient({"bootstrap.servers": served.kafka})
    listed = admin.list_consumer_groups().result()
    assert {alive, empty} <= {each.group_id for each in listed.valid}
    assert not listed.errors
    described = admin.describe_consumer_groups([alive])[alive].result()
    (member,) = described.members
    assert (described.state.name, described.partition_assignor) == ("STABLE", "range")
    assert (member.client_id, member.group_instance_id, member.host) == ("a", "one", "/127.0.0.1")
    assert {(p.topic, p.partition) for p in member.assignment.topic_partitions} == EVERYTHING
    (row,) = served.rows("groups", "members", alive)
    assert row["client_software"].startswith("confluent-kafka-python ")
    moved = ConsumerGroupTopicPartitions(empty, [TopicPartition("rows", 0, 7)])
    admin.alter_consumer_group_offsets([moved])[empty].result()
    assert served.offsets(empty) == {("rows", 0): 7}
    asked = ConsumerGroupTopicPartitions(alive)
    found = admin.list_consumer_group_offsets([asked])[alive].result().topic_partitions
    assert {(p.topic, p.partition): p.offset for p in found} == served.offsets(alive)
    with pytest.raises(confluent.KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([alive])[alive].result()
    admin.delete_consumer_groups([empty])[empty].result()
    with GroupAdmin(served.address) as ours, pytest.raises(GroupNotFound):
        ours.existing_group(empty)
    assert len(admin.list_topics().topics["rows"].partitions) == PARTITIONS


def test_kafka_pythons_admin_client_lists_describes_and_changes_groups(served, alive, empty):
    admin = KafkaAdminClient(bootstrap_servers=served.kafka)
    assert {alive, empty} <= {group["group_id"] for group in admin.list_groups()}
    described = admin.describe_groups([alive])[alive]
    assert described["group_state"] == "Stable"
    assert [column["group_instance_id"] for column in described["members"]] == ["one"]
    rows = PythonPartition("rows", 0)
    admin.alter_group_offsets(empty, {rows: OffsetAndMetadata(9, "", -1)})
    assert served.offsets(empty) == {("rows", 0): 9}
    admin.delete_group_offsets(empty, [rows])
    assert served.offsets(empty) == {}
    admin.delete_groups([empty])
    admin.close()


def test_javas_admin_client_lists_describes_and_changes_groups(served, empty, start, built):
    folder = built(JAVA).java
    member = start(CONFLUENT, served.kafka, "watched", "a", instance="one")
    member.wait(lambda: member.owned == EVERYTHING)
    path = ":".join(map(str, [folder, *fetch.java_jars()]))
    command = ["java", "-cp", path, "Tools", served.kafka, "watched", empty]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    port = served.kafka.rpartition(":")[2]
    assert done.stdout.splitlines() == [
        "listed true",
        f"described Stable range 1 {port}",
        "offsets {rows=7}",
        "earliest 0",
        "deleted null",
        "removed",
        "deleted group",
        f"topics {PARTITIONS}",
        "nodes 1",
    ]


def test_a_terminal_ui_shows_groups_with_state_members_and_lag(served, alive):
    program = fetch.tool("kafkatop")
    if program is None:
        pytest.skip("kafkatop was not fetched: python -m tests.integration.kafka.fetch tools")
    command = [program, "--kafka-broker", served.kafka, "--summary-json", "--all"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert alive in done.stdout
    assert "STABLE" in done.stdout.upper()


def test_an_exporter_exports_the_groups(served, alive, tmp_path):
    program = fetch.tool("kafka-overwatch")
    if program is None:
        pytest.skip(
            "kafka-overwatch was not fetched: python -m tests.integration.kafka.fetch tools"
        )
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", EXPORTER_PORT))
        except OSError as error:
            pytest.skip(f"port {EXPORTER_PORT}, which the exporter insists on: {error}")
    config = {
        "clusters": {
            "ours": {
                "cluster_config": {"kafka": {"bootstrap.servers": served.kafka}},
                "reporting_config": {"exports": {"local": str(tmp_path)}},
            }
        }
    }
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    command = [program, "-c", tmp_path / "config.yaml"]
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True) as process:
        try:
            assert _scraped(process, "cluster_consumer_groups_count") >= 1
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def _scraped(process: subprocess.Popen, metric: str) -> float:
    deadline = time.monotonic() + HANG_S
    page = ""
    while time.monotonic() < deadline:
        assert process.poll() is None, "the exporter has ended"
        try:
            url = f"http://127.0.0.1:{EXPORTER_PORT}/metrics"
            page = urllib.request.urlopen(url, timeout=5).read().decode()
        except OSError:
            page = ""
        if match := re.search(rf"^{metric}\{{.*\}} ([1-9].*)$", page, re.MULTILINE):
            return float(match[1])
        time.sleep(0.2)
    raise AssertionError(page[-2000:])
