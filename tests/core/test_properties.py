"""Random clients, random time: whatever they do, the invariants hold and nobody hangs."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from coordinator.core import invariants
from coordinator.core.group import GroupState
from tests.conformance.kit import GROUP, SUPERSET, Scenario, code

CLIENTS = st.integers(0, 9)


class Clients(RuleBasedStateMachine):
    """Ten clients of one group. Each remembers its id, generation and call."""

    def __init__(self) -> None:
        super().__init__()
        self.s = Scenario(group_max_size=8)
        self.ids = [""] * 10
        self.generations = [-1] * 10
        self.calls: list = [None] * 10
        self.leaders: dict[int, set[str]] = {}
        self.committed = -1

    def _hear(self, n: int) -> None:
        """Take in the answer to a parked call, as a client would."""
        call = self.calls[n]
        if call is None or not call.done:
            return
        self.calls[n] = None
        response = call.response
        if type(response).__name__ != "JoinGroupResponse":
            return
        if code(response) == "MEMBER_ID_REQUIRED":
            self.ids[n] = response.member_id
        elif code(response) == "NONE":
            self.ids[n], self.generations[n] = response.member_id, response.generation_id
            # A replaced static leader has a new id and the old name.
            leader = response.leader.split("-", 1)[0]
            self.leaders.setdefault(response.generation_id, set()).add(leader)
        elif code(response) in ("UNKNOWN_MEMBER_ID", "GROUP_MAX_SIZE_REACHED"):
            self.ids[n] = ""

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
            self.calls[n] = self.s.join(instance=f"i{n % 3}", protocols=SUPERSET)

    @rule(n=CLIENTS)
    def sync(self, n):
        members = self.s.members() if self.s.state else []
        shares = {m: m.encode() for m in members}
        self.calls[n] = self.s.sync(self.ids[n], self.generations[n], shares)

    @rule(n=CLIENTS)
    def beat(self, n):
        if self.s.beat(self.ids[n], self.generations[n]) == "UNKNOWN_MEMBER_ID":
            self.ids[n] = ""

    @rule(n=CLIENTS)
    def leave(self, n):
        self.s.leave(self.ids[n])
        self.ids[n] = ""

    @rule(n=CLIENTS, offset=st.integers(0, 100))
    def commit(self, n, offset):
        codes = self.s.commit_codes(
            {("t", 0): offset}, member_id=self.ids[n], generation=self.generations[n]
        )
        if codes == ["NONE"]:
            self.committed = offset

    @rule(n=CLIENTS)
    def go_away(self, n):
        if self.calls[n] is not None:
            self.calls[n].cancel()
            self.calls[n] = None

    @rule(ms=st.sampled_from([0, 1, 49, 50, 250, 499, 500, 1000]))
    def wait(self, ms):
        self.s.advance(ms)

    @rule(kind=st.sampled_from(["unavailable", "ambiguous", "too_large"]))
    def fail_an_append(self, kind):
        self.s.c.fail_next_append(kind)

    @rule()
    def restart(self):
        self.s.c.log._failures.clear()
        self.s.restart()
        self.calls = [None] * 10
        if self.s.state is None:
            # Nothing of the group was durable: another group begins, with generation 1.
            self.leaders.clear()

    @invariant()
    def one_leader_a_generation(self):
        for n in range(10):
            self._hear(n)
        for generation, leaders in self.leaders.items():
            assert len(leaders) == 1, f"generation {generation} was told of leaders {leaders}"

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
        """Once nobody does anything any more, the group rests and every call is answered."""
        self.s.c.log._failures.clear()
        self.s.advance(400_000)
        assert self.s.state in (None, "Empty")
        for call in self.calls:
            assert call is None or call.done
        group = self.s.c.shard.machine.groups.get(GROUP)
        if group is not None:
            assert group.state is GroupState.EMPTY
            invariants.check(group)


TestClients = Clients.TestCase
TestClients.settings = settings(max_examples=300, stateful_step_count=40, deadline=None)
