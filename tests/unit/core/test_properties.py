"""Scenarios 206 and 208: random clients, random time, failing appends, restarts.

Whatever they do, the invariants of `coordinator.core.classic.invariants` hold after every step
(`ClassicScenario` checks them), all members of a generation are sent the same, what was
acknowledged stays, every call is answered, and a group whose clients behave is soon Stable.

The fast tests play 200 histories, the slow tests 2,000, and `--hypothesis-profile=long` 50,000.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from coordinator.core.classic import invariants
from coordinator.core.group import GroupState
from coordinator.shard.writes import MAX_AMBIGUOUS_ATTEMPTS
from tests.kit.classic_scenario import GROUP, SUPERSET, ClassicScenario, code, partition_codes

CLIENTS = st.integers(0, 9)
FEW, MANY, LONG = 200, 1_000, 50_000
DELAY_MS, SESSION_MS, REBALANCE_MS = 50, 500, 500
TICK_MS = 50
SETTLED_MS = max(DELAY_MS, REBALANCE_MS) + REBALANCE_MS + SESSION_MS + 4 * TICK_MS


GONE = ("UNKNOWN_MEMBER_ID", "GROUP_MAX_SIZE_REACHED", "FENCED_INSTANCE_ID")


class Clients(RuleBasedStateMachine):
    """Ten clients of one group. Each remembers its ids, its generation and its call."""

    def __init__(self) -> None:
        super().__init__()
        self.s = ClassicScenario(group_max_size=8)
        self.ids = [""] * 10
        self.instances: list[str | None] = [None] * 10
        self.generations = [-1] * 10
        self.calls: list = [None] * 10
        self.next = ["join"] * 10  # Next request of a correct client.
        self.heard: dict[int, set[tuple[str, str]]] = {}  # (leader, protocol) by generation.
        self.committed = -1

    def _receive(self, n: int) -> None:
        """Take in the answer to a parked call, as a client would."""
        call = self.calls[n]
        if call is None or not call.done:
            return
        self.calls[n] = None
        response = call.response
        if type(response).__name__ != "JoinGroupResponse":
            self.next[n] = "beat"
        elif code(response) == "MEMBER_ID_REQUIRED":
            self.ids[n], self.next[n] = response.member_id, "join"
        elif code(response) == "NONE":
            self.ids[n], self.generations[n] = response.member_id, response.generation_id
            self.next[n] = "sync"
            # A replaced static leader has a new id and the old name.
            leader = response.leader.split("-", 1)[0]
            told = (leader, response.protocol_name)
            self.heard.setdefault(response.generation_id, set()).add(told)
        elif code(response) in GONE:
            self._forget(n)

    def _forget(self, n: int) -> None:
        self.ids[n], self.instances[n] = "", None

    @rule(n=CLIENTS, two_phase=st.booleans(), changed=st.booleans())
    def join(self, n, two_phase, changed):
        metadata = b"changed" if changed else b""
        self.calls[n] = self.s.join(
            self.ids[n],
            two_phase=two_phase,
            protocols=SUPERSET,
            metadata=metadata,
            client_id=f"c{n}",
        )

    @rule(n=CLIENTS)
    def join_static(self, n):
        if not self.ids[n]:
            self.instances[n] = f"i{n % 3}"
            self.calls[n] = self.s.join(instance=f"i{n % 3}", protocols=SUPERSET)

    @rule(n=CLIENTS)
    def sync(self, n):
        members = self.s.members() if self.s.state else []
        shares = {m: m.encode() for m in members}
        self.calls[n] = self.s.sync(self.ids[n], self.generations[n], shares)

    @rule(n=CLIENTS)
    def beat(self, n):
        if self.s.beat(self.ids[n], self.generations[n]) in GONE:
            self._forget(n)

    @rule(n=CLIENTS)
    def leave(self, n):
        self.s.leave(self.ids[n])
        self._forget(n)

    @rule(n=CLIENTS, offset=st.integers(0, 100))
    def commit(self, n, offset):
        call = self.s.commit(
            {("t", 0): offset}, member_id=self.ids[n], generation=self.generations[n]
        )
        while not call.done:  # Its append is tried again after a back-off.
            self.s.advance(1)
        if partition_codes(call.response) == ["NONE"]:
            self.committed = offset
        elif not self.s.c.is_loaded:  # The commit may have been written before the shard ended.
            self._load()
            stored = self.s.stored(("t", 0)).get(("t", 0), -1)
            assert stored in (self.committed, offset)
            self.committed = stored

    @rule(n=CLIENTS)
    def go_away(self, n):
        if self.calls[n] is not None:
            self.calls[n].cancel()
            self.calls[n] = None

    @rule(ms=st.sampled_from([0, 1, 49, 50, 250, 499, 500, 1000]))
    def wait(self, ms):
        self.s.advance(ms)

    @rule(kind=st.sampled_from(["unavailable", "full", "ambiguous", "lost", "too_large"]))
    def fail_an_append(self, kind):
        self.s.c.fail_next_append(kind)

    @rule()
    def take_a_snapshot(self):
        self.s.c.take_snapshot()

    def _load(self) -> None:
        """Load the shard from the log; its callers do not hear any more."""
        self.s.restart()
        self.calls = [None] * 10

    @rule()
    def restart(self):
        self.s.c.log.forget_failures()
        is_resolved = self.s.c.shard.stats().pending_appends == 0
        facts = sorted(self.s.c.shard.records(), key=repr)
        self._load()
        if is_resolved:
            assert sorted(self.s.c.shard.records(), key=repr) == facts

    @invariant()
    def a_generation_has_one_leader_and_one_protocol(self):
        for n in range(10):
            self._receive(n)
        if not self.s.c.is_loaded:  # Given up after ten attempts; a service loads it again.
            self._load()
        for generation, message in self.heard.items():
            assert len(message) == 1, f"of generation {generation} members heard {message}"

    @invariant()
    def acknowledged_commits_are_there(self):
        if self.committed >= 0:
            assert self.s.stored(("t", 0)) == {("t", 0): self.committed}

    @invariant()
    def every_parked_call_belongs_to_a_member(self):
        parked = self.s.c.shard.machine.parked_calls
        for group, member in parked.values():
            assert group.members.get(member.member_id) is member

    def teardown(self):
        """Clients that behave are soon in a Stable group; clients that are gone leave none."""
        self.s.c.log.forget_failures()
        for _ in range(SETTLED_MS // TICK_MS):
            for n in range(10):
                self._behave(n)
            self.s.advance(TICK_MS)
        if any(self.ids):
            assert self.s.state == "Stable"
        self.s.advance(400_000)
        assert self.s.state in (None, "Empty")
        for call in self.calls:
            assert call is None or call.done
        group = self.s.c.shard.machine.groups.get(GROUP)
        if group is not None:
            assert group.state is GroupState.EMPTY
            invariants.check(group)

    def _behave(self, n: int) -> None:
        """Send the next request of a client with an id: re-join if told to, sync or heartbeat."""
        self._receive(n)
        if self.calls[n] is not None or not self.ids[n]:
            return
        if self.next[n] == "beat":
            answer = self.s.beat(self.ids[n], self.generations[n])
            if answer in GONE:
                self._forget(n)
            elif answer != "NONE":
                self.next[n] = "join"
        elif self.next[n] == "sync":
            self.sync(n=n)
        else:
            self.calls[n] = self.s.join(
                self.ids[n],
                instance=self.instances[n],
                protocols=SUPERSET,
                metadata=b"settled",
                client_id=f"c{n}",
            )


def play(histories: int) -> None:
    """Play random histories, each of at most 40 steps."""
    long = settings(max_examples=histories, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(Clients, settings=long)


@pytest.mark.parametrize(("first", "offset"), [("ambiguous", 4), ("lost", 3)])
def test_a_shard_that_is_given_up_is_loaded_again(first, offset):
    clients = Clients()

    def fail_until_it_is_given_up():
        for kind in (first, *["lost"] * (MAX_AMBIGUOUS_ATTEMPTS - 1)):
            clients.fail_an_append(kind=kind)

    clients.commit(n=0, offset=3)
    fail_until_it_is_given_up()
    clients.commit(n=0, offset=4)
    assert clients.committed == offset
    fail_until_it_is_given_up()
    clients.join_static(n=0)
    clients.wait(ms=5_000)
    assert not clients.s.c.is_loaded
    clients.a_generation_has_one_leader_and_one_protocol()
    clients.acknowledged_commits_are_there()
    clients.teardown()


def test_clients():
    play(FEW)


@pytest.mark.integration
@pytest.mark.timeout(0)  # The long profile takes a quarter of an hour.
def test_clients_in_many_histories():
    play(LONG if settings.get_current_profile_name() == "long" else MANY)
