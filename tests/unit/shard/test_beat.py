"""`Shard.beat` is a step for those who have nothing to hear: two shards lead the same life, one
with the short way and one without, and nobody can tell them apart."""

from __future__ import annotations

import random

import pytest

from coordinator.runtime.recording import state_hash
from coordinator.v1.errors_pb2 import ErrorCode
from tests.kit.classic_scenario import GROUP, SUPERSET, ClassicScenario

HISTORIES, STEPS = 60, 120
CLIENTS = 5


class Brief(ClassicScenario):
    """Heartbeats go the short way where they can."""

    short = 0

    def beat(self, member_id, generation, *, group=GROUP, instance=None) -> str:
        quick = self.c.shard.beat(group, member_id, instance, generation, self.c.now_ms)
        self.short += quick
        if quick:
            return "NONE"
        return super().beat(member_id, generation, group=group, instance=instance)


def act(rng: random.Random, twins: tuple[ClassicScenario, ClassicScenario]) -> list[object]:
    """The same at both; what they answered."""
    plain = twins[0]
    members = plain.members() if plain.state else []
    member_id = rng.choice([*members, "", "stranger"])
    instance = rng.choice([None, None, "i0", "i1"])
    generation = plain.generation + rng.choice([0, 0, 0, -1])
    what = rng.choice(["join", "sync", "beat", "beat", "beat", "leave", "wait", "wait"])
    ms = rng.choice([1, 50, 130, 400, 501])
    host = f"c{rng.randrange(CLIENTS)}"
    answers: list[object] = []
    for twin in twins:
        match what:
            case "join":
                call = twin.join(member_id, instance=instance, protocols=SUPERSET, client_id=host)
                answers.append(call.done and call.response)
            case "sync":
                call = twin.sync(member_id, generation, {m: m.encode() for m in members})
                answers.append(call.done and call.response)
            case "beat":
                answers.append(twin.beat(member_id, generation, instance=instance))
            case "leave":
                answers.append(twin.leave_codes(member_id) if plain.state else None)
            case _:
                twin.advance(ms)
    return answers


def deadlines(s: ClassicScenario) -> dict[str, int]:
    sessions = s.c.shard._sessions
    found = {member: sessions.find(member) for member in (s.members() if s.state else [])}
    return {member: item.deadline_ms for member, item in found.items() if item is not None}


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_nobody_can_tell_the_short_way_from_the_long_one(seed):
    rng = random.Random(seed)
    twins = (ClassicScenario(group_max_size=5), Brief(group_max_size=5))
    for _ in range(STEPS):
        answers = act(rng, twins)
        assert not answers or answers[0] == answers[1]
        assert deadlines(twins[0]) == deadlines(twins[1])
        assert state_hash(twins[0].c.shard) == state_hash(twins[1].c.shard)
    assert twins[0].c.events == twins[1].c.events


def test_the_short_way_is_taken():
    s = Brief()
    a, b = s.f2()
    assert [s.beat(a, 2), s.beat(b, 2)] == ["NONE", "NONE"]
    assert s.short == 2


@pytest.mark.parametrize("why", ["stranger", "generation", "instance", "rebalance", "unloaded"])
def test_whoever_is_to_hear_something_goes_the_long_way(why):
    s = Brief()
    a, _ = s.f2()
    asked = {"member_id": a, "generation": 2, "instance": None}
    match why:
        case "stranger":
            asked["member_id"] = "x"
        case "generation":
            asked["generation"] = 1
        case "instance":
            asked["instance"] = "i"
        case "rebalance":
            s.join(client_id="third")
        case "unloaded":
            s.c.fail_next_append("fenced")
            s.commit({("t", 0): 1}, group="other")
    assert ErrorCode.Value(s.beat(**asked)) != ErrorCode.NONE
    assert s.short == 0
