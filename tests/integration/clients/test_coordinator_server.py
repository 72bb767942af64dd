"""The fixture `coordinator_server`: a real node for tests of users, sync and async."""

import os
import signal

import pytest

from coordinator.client import BlockingMember, Member, TopicPartition
from coordinator.settings import InvalidSetting
from coordinator.testing import CannotStart

TOPICS = {"invoices": 2}
FIRST = TopicPartition("invoices", 0)


def test_offsets_outlive_a_kill_with_a_data_folder(coordinator_server, tmp_path):
    server = coordinator_server(data_dir=tmp_path / "data")
    address = server.address
    with BlockingMember(address, "billing", TOPICS) as member:
        while not member.assignment:
            member.poll(timeout=1)
        member.commit({FIRST: 3})
        server.kill()
        server.start()
        assert server.address == address
        assert member.committed([FIRST]) == {FIRST: 3}


async def test_it_serves_async_tests(coordinator_server):
    server = coordinator_server()
    async with Member(server.address, "billing", TOPICS) as member:
        while not member.assignment:
            await member.poll(timeout=1)
        assert len(member.assignment) == 2


def test_settings_are_passed_and_checked(coordinator_server):
    with pytest.raises(InvalidSetting, match="shards"):
        coordinator_server(shard=3)
    server = coordinator_server(shards=3, insecure=True)
    serving = next(line for line in server.log if line["event"] == "serving")
    assert serving["shards"] == 3


def test_a_node_that_cannot_start_shows_its_log(coordinator_server):
    first = coordinator_server()
    with pytest.raises(CannotStart, match="cannot listen at"):
        coordinator_server(listen=first.address)


def test_it_is_called_to_start_a_node(coordinator_server):
    with pytest.raises(AttributeError, match=r"server = coordinator_server\(\), then server\.add"):
        assert coordinator_server.address


def test_settings_in_the_environment_are_none_of_its(coordinator_server, monkeypatch):
    monkeypatch.setenv("COORDINATOR_SHARDS", "no number")
    assert coordinator_server().address


def test_it_ends_with_the_process_that_started_it(coordinator_server):
    server = coordinator_server()
    node = server._node
    node._process.stdin.close()  # As the system does when the test's process is killed.
    assert node.wait() == 0
    with pytest.raises(ProcessLookupError):
        os.kill(node.pid, signal.SIGCONT)
