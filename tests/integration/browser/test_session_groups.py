"""The page of a session group: hand-offs, members that are not at work, plans."""

from __future__ import annotations

import queue

import grpc
import pytest
from playwright.sync_api import expect

from coordinator.v1 import session_pb2 as pb
from coordinator.v1 import session_pb2_grpc
from tests.integration.browser.conftest import FLAGS, WIDE, opened
from tests.kit.serving import Process
from tests.kit.session_member import ScriptedMember

POLICY = pb.GroupPolicy(
    lease_ms=300_000, drain_timeout_ms=600_000, join_quiet_ms=0, initial_delay_ms=0
)


class Member(ScriptedMember):
    """A member of a session group that attaches, and says nothing else."""

    def __init__(self, channel, name: str) -> None:
        super().__init__(name, 12, group_id="orders", topic="orders", client_id=name, wishes=POLICY)
        self._said: queue.SimpleQueue[pb.SessionRequest | None] = queue.SimpleQueue()
        stub = session_pb2_grpc.GroupSessionsStub(channel)
        self.call = stub.Session(iter(self._said.get, None))
        self._said.put(self.attach())

    def receive(self, kind: str) -> None:
        """Read until a message of a kind has come."""
        for message in self.call:
            if message.WhichOneof("message") == kind:
                return
        raise AssertionError(f"the stream ended without {kind}")

    def end(self) -> None:
        """End the stream, and say nothing."""
        self._said.put(None)
        self.call.cancel()


@pytest.fixture(scope="module")
def sessions():
    """A node with a session group: a hand-off is open, and one member has no stream."""
    with Process(*FLAGS) as node, grpc.insecure_channel(node.address) as channel:
        members = []
        for name in ("w-a", "w-b", "w-c"):
            members.append(Member(channel, name))
            members[-1].receive("attached")
            if name != "w-c":  # One hand-off at a time: the third waits for the second's.
                members[0].receive("orders")
        members[2].end()
        yield node
        for member in members:
            member.end()


@pytest.fixture
def page(browser, sessions):
    with opened(browser, sessions.console, WIDE) as page:
        yield page


def test_a_session_group_shows_handoffs_and_members_without_a_stream(sessions, page):
    page.goto(f"{sessions.console}#/groups/orders")
    expect(page.locator("#group-summary-text")).to_contain_text("session group, 3 members")
    expect(page.locator("#group-state")).to_have_text("Reconciling")
    expect(page.locator("#session-summary")).to_contain_text("Lease 5 min 0 s, hand-offs simple")
    expect(page.locator("#handoffs-list")).to_contain_text("orders-")
    row = page.locator("#handoffs tr").first
    expect(row).to_contain_text("w-a")
    expect(row).to_contain_text("drain")
    expect(page.locator("#notable tr")).to_contain_text(["w-c"])
    expect(page.locator("#notable")).to_contain_text("suspect")
    expect(page.locator("#journal-title")).to_have_text("Plans")
    lines = page.locator("#rebalances summary").all_inner_texts()
    assert any("member 'w-b" in line and "of 12 partitions moved" in line for line in lines)
    page.locator("#members-summary").click()
    expect(page.locator("#members tr")).to_have_count(3)


def test_the_list_counts_session_groups_that_hand_over_as_rebalancing(sessions, page):
    page.goto(f"{sessions.console}#/?state=rebalancing")
    expect(page.locator("#groups-list")).to_contain_text("orders")
    expect(page.locator("#groups-rows td[data-label=Kind]")).to_have_text("Session")
