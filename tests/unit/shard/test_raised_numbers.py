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
from tests.kit.hosted_shard import HostedShard

RAISED = 100_000
S0 = ShardId(0)


def joined(host: HostedShard, client_id: str, group_id: str = "g") -> int:
    """Join as a new member; the call, which is answered."""
    call = host.join(client_id, group_id=group_id)
    while call not in host.answers:
        host.now_ms = host.deadline_ms
        host.step(Tick())
        host.store()
    return call


def in_generation(host: HostedShard, group_id: str = "g") -> int:
    """Join as a new member; the generation that it is given."""
    return host.answers[joined(host, "c", group_id)].generation


def a_log_that_went_back() -> HostedShard:
    """The owner of a shard whose log has lost its newest entry."""
    host = HostedShard()
    for offset in (7, 8):
        host.commit(offset)
        host.store()
    host.log.go_back(S0, 1, RAISED)
    refused = host.commit(9)
    host.store()
    assert host.answers[refused].results[0].error is ErrorCode.NOT_COORDINATOR
    host.pass_time(5_000)
    host.store()
    return host


def test_generations_go_on_above_lost_ones_in_new_groups_too():
    host = a_log_that_went_back()
    assert in_generation(host, "g") > RAISED
    assert in_generation(host, "new") > RAISED


def test_the_journal_of_a_classic_group_tells_it():
    host = HostedShard()
    host.sync(joined(host, "a"))
    host.store()
    host.store()
    host.log.go_back(S0, 2, RAISED)  # The group is there, and the journal's entry is lost.
    refused = host.sync(joined(host, "b"))
    host.store()
    assert host.answers[refused].error is ErrorCode.NOT_COORDINATOR
    host.pass_time(5_000)
    host.store()
    host.sync(joined(host, "c"))
    host.store()
    host.store()
    told = [event.record for event in host.events if isinstance(event, RebalanceJournaled)]
    assert [record.store_went_back for record in told] == [False, True]
    sentence = "The store had lost commits that were acknowledged"
    found = [any(words.startswith(sentence) for words in explain(record)) for record in told]
    assert found == [False, True]


def test_the_first_entry_of_the_next_owner_raises_the_numbers():
    host = a_log_that_went_back()
    loaded = host._host.stored()
    records = [codec.decode(data) for data in loaded.entries[-1].records]
    assert isinstance(records[0], NumbersRaised)
    assert loaded.raised == 0, "it is not raised again by the owner after that"


def test_who_dies_before_that_entry_leaves_it_to_the_next_owner():
    host = HostedShard()
    in_generation(host)
    host.log.go_back(S0, 0, RAISED)
    again = HostedShard()
    again.log = host.log
    again._host._log = host.log
    again.step(Start())
    assert host.log.load_now(host.log.fence_now(S0)).raised == RAISED
