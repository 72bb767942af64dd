"""The kill as the workers noted it, beside what the coordinator says of it."""

import pytest

from coordinator.v1 import admin_pb2
from flights.history import History, Kill, Rest, Stint

pytest.importorskip("pandas", reason="the flights need the extra `demo`")

from flights.report import compared, explained, report


def rest(length_s, partition=0):
    return Rest("a", partition, 10.0, 10.0 + length_s, "b")


def move(least_ms, most_ms, client_id="a", *, has_moved=True):
    return admin_pb2.PartitionMove(
        from_client_id=client_id,
        has_moved=has_moved,
        unowned_ms_min=least_ms,
        unowned_ms_max=most_ms,
    )


@pytest.mark.parametrize(
    ("rests", "moves", "told"),
    [
        ([3.0, 3.9], [move(2_700, 3_100)], "3.0 s, which is within its range."),
        ([3.0], [move(2_700, 2_900), move(2_800, 3_000)], "3.0 s, which is within its range."),
        ([3.0], [move(2_700, -1)], "3.0 s, which is within its range."),
        ([3.0], [move(3_250, 3_400)], "3.0 s, 250 ms less than it says."),
        (
            [3.5],
            [move(2_700, 3_000)],
            "3.5 s, 500 ms more than it says: the new owner began so much later.",
        ),
        ([3.0], [move(1, 2, "other")], None),
        ([3.0], [move(1, 2, has_moved=False)], None),
        ([], [move(1, 2)], None),
    ],
)
def test_the_range_of_explain_is_compared_with_the_partition_that_was_begun_first(
    rests, moves, told
):
    expected = [] if told is None else [f"In truth the first of them rested for {told}"]
    assert list(compared([rest(length_s) for length_s in rests], moves)) == expected


def test_only_the_rebalance_that_removed_the_one_that_was_killed_is_told(tmp_path, capsys):
    history = History(
        ("a", "b"),
        (Stint("a", 0, 1.0, 5.0), Stint("b", 0, 8.0, 9.0)),
        (Kill("a", 5.0, 7.9),),
        (7.9,),
        end_s=9.0,
    )

    def rebalance(generation, client_id, cause):
        removed = admin_pb2.RemovedMember(client_id=client_id, cause=cause)
        return admin_pb2.Rebalance(
            group_id="g",
            generation_after=generation,
            removed=[removed],
            explanation=[f"generation {generation}\x1b[31m"],
            moves=[move(2_900, 3_100)],
        )

    journal = [
        rebalance(5, "a", "session expired"),
        rebalance(4, "a", "left"),
        rebalance(3, "a", "session expired"),
        rebalance(2, "b", "session expired"),
    ]
    report(history, "Who worked", journal, tmp_path)
    assert capsys.readouterr().out.splitlines() == [
        "",
        f"Who worked: {tmp_path}/owners.svg",
        "a was killed at 5.0 s: its partition rested for 3.0 s, until b went on with it.",
        "The coordinator, which saw no SIGKILL, says of it (`coordinator explain g 3`):",
        "  generation 3\\x1b[31m",
        "In truth the first of them rested for 3.0 s, which is within its range.",
    ]
    assert list(explained(history, [])) == []
    assert {path.name for path in tmp_path.iterdir()} == {"owners.json", "owners.svg"}
