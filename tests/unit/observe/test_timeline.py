"""Timelines: for whom others waited, and the time in which nobody worked on partitions."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from coordinator.observe.timeline import IDLE, LATE, PERHAPS, as_text, idle_lanes, lanes
from coordinator.observe.timeline_svg import as_svg
from coordinator.v1 import admin_pb2 as pb

SVG = "{http://www.w3.org/2000/svg}"


def rebalance(*removed: tuple[str, str, str], **more) -> pb.Rebalance:
    return pb.Rebalance(
        group_id="g",
        cause="session expired",
        generation_before=4,
        generation_after=5,
        started_at_ms=100_000,
        ended_at_ms=101_000,
        join_phase_ms=900,
        sync_phase_ms=100,
        durable_phase_ms=0,
        participants=[
            pb.RebalanceParticipant(
                member_id=name, client_id=name, joined_at_ms=at_ms, synced_at_ms=101_000
            )
            for name, at_ms in (("one", 100_000), ("two", 100_001))
        ],
        removed=[
            pb.RemovedMember(member_id=name, client_id=name, cause=cause, code=code)
            for name, cause, code in removed
        ],
        **more,
    )


def move(**more) -> pb.PartitionMove:
    return pb.PartitionMove(
        topic="t",
        partitions=[pb.PartitionMove.Range(first=0, last=3)],
        partition_count=4,
        from_client_id="dead",
        to_client_id="one",
        has_moved=True,
        stopped_earliest_ms=95_000,
        stopped_latest_ms=97_000,
        resumed_at_ms=101_000,
        unowned_ms_min=4_000,
        unowned_ms_max=6_000,
        **more,
    )


def test_others_are_said_to_have_waited_for_those_alone_that_did_not_join_in_time():
    drawn = lanes(
        rebalance(
            ("left", "left and said: enough", "left"),
            ("dead", "session expired", "session_expired"),
            ("slow", "did not re-join in time", "join_timed_out"),
        )
    )
    late = {lane.name.split()[0]: [b for b in lane.bars if b.kind == LATE] for lane in drawn}
    assert (late["left"], late["dead"]) == ([], [])
    assert len(late["slow"]) == 1
    assert [lane.note for lane in drawn[2:]] == [
        "left and said: enough",
        "removed: session expired",
        "removed: did not re-join in time",
    ]


def test_the_time_without_work_is_drawn_from_before_the_rebalance():
    told = rebalance(moves=[move()])
    (lane,) = idle_lanes(told)
    assert (lane.name, lane.note) == ("t-0…3", "dead → one, 4.0 s to 6.0 s")
    assert [(bar.kind, bar.begin_ms, bar.end_ms) for bar in lane.bars] == [
        (PERHAPS, -5_000, -3_000),
        (IDLE, -3_000, 1_000),
    ]
    text = as_text(told, width=60)
    drawn = next(line for line in text.splitlines() if line.startswith("t-0…3"))
    assert (drawn.count("·"), drawn.count("×")) == (20, 40)
    member = next(line for line in text.splitlines() if line.startswith("one"))
    assert member.index("═") - drawn.index("·") == 50, "the rebalance is the last sixth"
    assert ">−5 s<" in as_svg(told)


def test_a_rest_of_a_night_leaves_room_for_the_rebalance():
    night = move()
    night.unowned_ms_max = night.unowned_ms_min = 8 * 3_600_000
    (lane,) = idle_lanes(rebalance(moves=[night]))
    assert lane.bars[0].begin_ms == -600_000


def test_of_many_rests_the_first_are_drawn():
    drawn = idle_lanes(rebalance(moves=[move() for _ in range(11)]))
    assert (len(drawn), drawn[-1].note) == (9, "and 3 more")


def test_partitions_that_did_not_rest_have_no_lane():
    straight = move()
    straight.unowned_ms_min = straight.unowned_ms_max = 0
    assert idle_lanes(rebalance(moves=[straight])) == []


def drawn(shown: pb.Rebalance) -> tuple[float, list[ET.Element]]:
    """Width of a picture, and its texts."""
    root = ET.fromstring(as_svg(shown))
    return float(root.get("viewBox").split()[2]), list(root.iter(f"{SVG}text"))
