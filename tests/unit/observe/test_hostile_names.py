"""Rebalances whose every name means harm, in sentences and pictures."""

from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest

from coordinator.core.values.errors import ErrorCode
from coordinator.core.values.events import RebalanceCause, RefusedJoin
from coordinator.core.values.rebalance_journal import (
    PartitionMove,
    PartitionRange,
    RebalanceMember,
    RebalanceRecord,
    RemovedMember,
)
from coordinator.observe.explain import explain, explain_refusal
from coordinator.observe.timeline import as_text
from coordinator.observe.timeline_svg import as_svg

HARM = "\x1b]0;owned\x07\n\0\x9b31m\x7f\u202e\u200b<i>&\"'\ufffe\ud800"
MEMBERS = tuple(
    RebalanceMember(
        f"m{number}{HARM}", HARM * number, f"/{HARM}", True, 1_000, 1_000 * number, -1, HARM
    )
    for number in range(3)
)
RECORD = RebalanceRecord(
    group_id=HARM, cause="member joined", outcome="completed", member_id=HARM, client_id=HARM,
    client_host=f"/{HARM}", reason=HARM, generation_before=1, generation_after=2, protocol=HARM,
    was_initial=False, started_at_ms=0, joined_at_ms=3_000, synced_at_ms=3_500, ended_at_ms=4_000,
    leader=MEMBERS[0].member_id, member_count=3, members=MEMBERS,
    removed=(RemovedMember(f"gone{HARM}", HARM, f"/{HARM}", "session expired"),),
    partitions_moved=3, unowned_partitions=2, unowned_ms_max=900,
    moves=(
        PartitionMove(
            HARM, HARM, HARM, HARM, HARM, True, HARM, 100, 200, 1_000, False, 2,
            (PartitionRange(0, 1),),
        ),
    ),
)  # fmt: skip


@pytest.mark.parametrize("cause", RebalanceCause)
def test_sentences_are_printable(cause):
    earlier = [replace(RECORD, protocol=f"other{HARM}")] * 4
    for sentence in explain(replace(RECORD, cause=cause.value), earlier):
        assert sentence.isprintable()


@pytest.mark.parametrize("error", ["INCONSISTENT_GROUP_PROTOCOL", "GROUP_MAX_SIZE_REACHED"])
def test_refusals_are_printable(error):
    refused = RefusedJoin(HARM, f"/{HARM}", ErrorCode[error], (HARM,), (HARM,), 2, 0, 0)
    assert explain_refusal(refused).isprintable()


def test_pictures_are_whole_and_printable():
    rebalance = SimpleNamespace(
        group_id=HARM, cause=HARM, generation_before=1, generation_after=2, started_at_ms=0,
        ended_at_ms=4_000, join_phase_ms=3_000, sync_phase_ms=500, durable_phase_ms=500,
        participants=MEMBERS, removed=(replace(RECORD.removed[0], cause=HARM),),
        moves=RECORD.moves,
    )  # fmt: skip
    root = ET.fromstring(as_svg(rebalance))
    dark = ET.fromstring(as_svg(rebalance, dark=True))
    assert [element.text for element in dark.iter()] == [element.text for element in root.iter()]
    assert (root.get("fill"), dark.get("fill")) == (None, "#e2e8ef")
    texts = [root.get("aria-label"), *(text for text in root.itertext() if text != "\n")]
    assert all(text.isprintable() for text in texts)
    assert any("\\x1b" in text for text in texts)
    assert all(line.isprintable() for line in as_text(rebalance).split("\n"))


def test_moves_between_two_members_are_one_sentence():
    pairs = (("t", "a", "b"), ("t", "a", "c"), ("u", "a", "b"))
    moves = tuple(
        PartitionMove(t, a, a, b, b, True, "left", 5, 5, 9, True, 4, (PartitionRange(0, 3),))
        for t, a, b in pairs
    )  # fmt: skip
    text = explain(replace(RECORD, partitions_moved=12, moves=moves))
    assert "t-0…3, u-0…3 went from a to b." in text
    assert "t-0…3 went from a to c." in text
