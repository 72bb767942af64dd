"""State table: the answer of each state to each request, cell by cell.

Members are A (leader) and B, as in F2. `parks` stands for a call that is not answered
yet, `answers` for an immediate answer with the current generation.
"""

from __future__ import annotations

import pytest

from coordinator.core.group import GroupState
from coordinator.v1 import admin_pb2 as admin
from tests.kit.classic_scenario import GROUP, ClassicScenario, code, partition_codes

STATES = ("none", "Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead")
T0 = ("t", 0)
CNA = "COORDINATOR_NOT_AVAILABLE"
UNKNOWN = "UNKNOWN_MEMBER_ID"
NOT_FOUND = "GROUP_ID_NOT_FOUND"
ID_REQUIRED = "MEMBER_ID_REQUIRED"
REBALANCE = "REBALANCE_IN_PROGRESS"


class GroupInState:
    """A group in a state, with its members' ids and its generation."""

    def __init__(self, state: str) -> None:
        self.s = s = ClassicScenario()
        self.a = self.b = "nobody"
        self.pending = "nobody"
        if state == "none":
            return
        self.a, self.b = s.f2()
        s.commit({T0: 5}, member_id=self.a, generation=2)
        if state in ("Empty", "Dead"):
            s.leave(self.a, self.b)
        self.pending = s.join(two_phase=True).response.member_id
        if state == "PreparingRebalance":
            s.join()
        if state == "CompletingRebalance":
            s.leave(self.pending)
            s.join(self.a), s.join(self.b, metadata=b"")
            self.pending = s.join(two_phase=True).response.member_id
        if state == "Dead":
            s.group().transition_to(GroupState.DEAD, s.c.now_ms)
        else:
            assert s.state == state

    @property
    def generation(self) -> int:
        return self.s.generation


def outcome(call) -> str:
    return code(call.response) if call.done else "parks"


def join(w: GroupInState, member_id: str, **more) -> str:
    call = w.s.join(member_id, **more)
    if not call.done:
        return "parks"
    name = code(call.response)
    return "answers" if name == "NONE" else name


def leave(w: GroupInState, member_id: str) -> str:
    response = w.s.leave(member_id)
    return code(response.members[0]) if response.members else code(response)


def commit(w: GroupInState, **who) -> str:
    return partition_codes(w.s.commit({T0: 9}, **who).response)[0]


def delete_offsets(w: GroupInState) -> str:
    topic = {"name": "t", "partitions": [{"partition_index": 0}]}
    response = w.s.send(admin.OffsetDeleteRequest(group_id=GROUP, topics=[topic])).response
    return code(response) if response.error_code else partition_codes(response)[0]


REQUESTS = {
    "join without id": lambda w: join(w, "", two_phase=True),
    "join at once": lambda w: join(w, ""),
    "join with a new instance id": lambda w: join(w, "", instance="new", two_phase=True),
    "join with the pending id": lambda w: join(w, w.pending, two_phase=True),
    "join of the follower, unchanged": lambda w: join(w, w.b),
    "join of the follower, changed": lambda w: join(w, w.b, metadata=b"new"),
    "join of the leader, unchanged": lambda w: join(w, w.a),
    "join with a strange id": lambda w: join(w, "strange"),
    "sync of the follower": lambda w: outcome(w.s.sync(w.b, w.generation)),
    "sync of the leader": lambda w: outcome(w.s.sync(w.a, w.generation, {})),
    "heartbeat": lambda w: w.s.beat(w.a, w.generation),
    "leave of a member": lambda w: leave(w, w.a),
    "leave of the pending id": lambda w: leave(w, w.pending),
    "commit of a member": lambda w: commit(w, member_id=w.a, generation=max(w.generation, 1)),
    "commit from outside": commit,
    "fetch": lambda w: str(w.s.stored(T0)[T0]),
    "describe": lambda w: w.s.describe().group_state,
    "delete the group": lambda w: code(
        w.s.send(admin.DeleteGroupsRequest(groups_names=[GROUP])).response.results[0]
    ),
    "delete offsets": delete_offsets,
}

# Members' metadata cannot be read here, so a consumer group is taken to read every topic.
READ = "GROUP_SUBSCRIBED_TO_TOPIC"
TABLE = {
    # request: what it gets in each of STATES
    "join without id": (ID_REQUIRED, ID_REQUIRED, ID_REQUIRED, ID_REQUIRED, ID_REQUIRED, CNA),
    "join at once": ("parks", "parks", "parks", "parks", "parks", CNA),
    "join with a new instance id": ("parks", "parks", "parks", "parks", "parks", CNA),
    "join with the pending id": (UNKNOWN, "parks", "parks", "parks", "parks", CNA),
    "join of the follower, unchanged": (UNKNOWN, UNKNOWN, "parks", "answers", "answers", CNA),
    "join of the follower, changed": (UNKNOWN, UNKNOWN, "parks", "parks", "parks", CNA),
    "join of the leader, unchanged": (UNKNOWN, UNKNOWN, "parks", "answers", "parks", CNA),
    "join with a strange id": (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, CNA),
    "sync of the follower": (UNKNOWN, UNKNOWN, REBALANCE, "parks", "NONE", CNA),
    "sync of the leader": (UNKNOWN, UNKNOWN, REBALANCE, "NONE", "NONE", CNA),
    "heartbeat": (UNKNOWN, UNKNOWN, REBALANCE, "NONE", "NONE", CNA),
    "leave of a member": (UNKNOWN, UNKNOWN, "NONE", "NONE", "NONE", CNA),
    "leave of the pending id": (UNKNOWN, "NONE", "NONE", "NONE", "NONE", CNA),
    "commit of a member": (NOT_FOUND, UNKNOWN, "NONE", REBALANCE, "NONE", CNA),
    "commit from outside": ("NONE", "NONE", UNKNOWN, UNKNOWN, UNKNOWN, CNA),
    "fetch": ("-1", "5", "5", "5", "5", "-1"),
    "describe": ("Dead", *STATES[1:5], "Dead"),
    "delete the group": (NOT_FOUND, "NONE", *("NON_EMPTY_GROUP",) * 3, NOT_FOUND),
    "delete offsets": (NOT_FOUND, "NONE", READ, READ, READ, NOT_FOUND),
}


def test_every_request_has_a_row():
    assert TABLE.keys() == REQUESTS.keys()


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("request_", REQUESTS)
def test_cell(request_, state):
    world = GroupInState(state)
    assert REQUESTS[request_](world) == TABLE[request_][STATES.index(state)]
