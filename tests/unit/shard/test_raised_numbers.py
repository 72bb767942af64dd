"""A shard whose log has lost acknowledged entries: the next owner raises its numbers first."""

from __future__ import annotations

from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.events import RebalanceJournaled
from coordinator.core.values.ids import ShardId
from coordinator.core.values.records import NumbersRaised
from coordinator.observe.explain import explain
from coordinator.runtime import codec
from coordinator.shard.effects import Start
from coordinator.shard.inputs import Tick
from tests.unit.shard.desk import Desk

RAISED = 100_000
S0 = ShardId(0)


def joined(desk: Desk, client_id: str, group_id: str = "g") -> int:
    """Join as a new member; the call, which is answered."""
    call = desk.join(client_id, group_id=group_id)
    while call not in desk.answers:
        desk.now_ms = desk.deadline_ms
        desk.step(Tick())
        desk.store()
    return call


def in_generation(desk: Desk, group_id: str = "g") -> int:
    """Join as a new member; the generation that it is given."""
    return desk.answers[joined(desk, "c", group_id)].generation


def a_log_that_went_back() -> Desk:
    """The owner of a shard whose log has lost its newest entry."""
    desk = Desk()
    for offset in (7, 8):
        desk.commit(offset)
        desk.store()
    desk.log.go_back(S0, 1, RAISED)
    refused = desk.commit(9)
    desk.store()
    assert desk.answers[refused].results[0].error is ErrorCode.NOT_COORDINATOR
    desk.pass_time(5_000)
    desk.store()
    return desk


def test_generations_go_on_above_lost_ones_in_new_groups_too():
    desk = a_log_that_went_back()
    assert in_generation(desk, "g") > RAISED
    assert in_generation(desk, "new") > RAISED


def test_the_journal_of_a_classic_group_tells_it():
    desk = Desk()
    desk.sync(joined(desk, "a"))
    desk.store()
    desk.store()
    desk.log.go_back(S0, 2, RAISED)  # The group is there, and the journal's entry is lost.
    refused = desk.sync(joined(desk, "b"))
    desk.store()
    assert desk.answers[refused].error is ErrorCode.NOT_COORDINATOR
    desk.pass_time(5_000)
    desk.store()
    desk.sync(joined(desk, "c"))
    desk.store()
    desk.store()
    told = [event.record for event in desk.events if isinstance(event, RebalanceJournaled)]
    assert [record.store_went_back for record in told] == [False, True]
    sentence = "The store had lost commits that were acknowledged"
    found = [any(words.startswith(sentence) for words in explain(record)) for record in told]
    assert found == [False, True]


def test_the_first_entry_of_the_next_owner_raises_the_numbers():
    desk = a_log_that_went_back()
    loaded = desk._host.stored()
    records = [codec.decode(data) for data in loaded.entries[-1].records]
    assert isinstance(records[0], NumbersRaised)
    assert loaded.raised == 0, "it is not raised again by the owner after that"


def test_who_dies_before_that_entry_leaves_it_to_the_next_owner():
    desk = Desk()
    in_generation(desk)
    desk.log.go_back(S0, 0, RAISED)
    again = Desk()
    again.log = desk.log
    again._host._log = desk.log
    again.step(Start())
    assert desk.log.load_now(desk.log.fence_now(S0)).raised == RAISED
