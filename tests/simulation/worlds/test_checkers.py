"""Each checker is red for the breach it is named after, and green for a good history."""

from __future__ import annotations

import base64
import json
import subprocess
import sys

import pytest

from tests.simulation.worlds.checkers.check import CLAIMS, problems


def line(op: str, at: float, **more) -> dict:
    return {"op": op, "began": at, "ended": at + 0.5, "group": "g", **more}


def joined(at, generation, member="a", leader="a"):
    return line("joined", at, generation=generation, member=member, leader=leader)


def assigned(at, generation, member, *partitions):
    return line("assigned", at, generation=generation, member=member, partitions=list(partitions))


def committed(at, offset, answer="NONE"):
    return line("committed", at, partition="t-0", offset=offset, answer=answer)


def fetched(at, offset):
    return line("fetched", at, partition="t-0", offset=offset)


def beaten(at, answer):
    return line("beaten", at, member="a", generation=1, answer=answer)


def handled(since, offset, generation, member="a"):
    """A worker's commit, and the call that carried it."""
    return [
        {**committed(4, offset), "generation": generation, "member": member},
        {"op": "handled", "group": "g", "partition": "t-0", "offset": offset, "since": since},
    ]


def served(at, epoch, node="n1", method="SyncGroup", in_session=True):
    return {
        "op": "served", "at": at, "node": node, "group": "g", "epoch": epoch, "method": method,
        "in_session": in_session,
    }  # fmt: skip


def worked(*members):
    return {"op": "worked", "at": 1.0, "group": "g", "partition": "t-0", "members": [*members]}


def kept(at, token):
    return line("kept", at, partition="t-0", offset=1, token=token)


def rested(seats=1, **shares):
    return {
        "op": "rested", "group": "g", "expected": ["t-0", "t-1"], "shares": shares,
        "seats": dict.fromkeys(shares, seats),
    }  # fmt: skip


def stepped(loaded):
    return {"op": "stepped", "node": "n1", "loaded": loaded}


def stored(generation, sequence=1, epoch=1, **shares):
    members = [
        {"member_id": m, "assignment": base64.b64encode(json.dumps(p).encode()).decode()}
        for m, p in shares.items()
    ]
    return {
        "shard": 0, "sequence": sequence, "epoch": epoch, "log_offset": sequence - 1,
        "record": "GroupMetadata", "group_id": "g", "generation": generation, "members": members,
    }  # fmt: skip


def offset(value, sequence=1, epoch=1, log_offset=None):
    return {
        "shard": 0, "sequence": sequence, "epoch": epoch,
        "log_offset": sequence - 1 if log_offset is None else log_offset,
        "record": "OffsetCommitted", "group_id": "g", "topic": "t", "partition": 0, "offset": value,
    }  # fmt: skip


GOOD = (
    [
        joined(1, 1),
        assigned(2, 1, "a", "t-0", "t-1"),
        committed(3, 5),
        committed(4, 7, "none"),
        fetched(5, 7),
        joined(6, 3),
        joined(6, 3, "b"),
        assigned(7, 3, "a", "t-0"),
        assigned(7, 3, "b", "t-1"),
        assigned(8, 3, "b", "t-1"),
        beaten(9, "REBALANCE_IN_PROGRESS"),
        {"op": "quiet", "group": "other", "since": 0},
        {"op": "quiet", "group": "g", "since": 9.2},
        {**joined(9, 2), "restarted": True},
        *handled(1, 7, 3),
        served(1, 1),
        served(2, 2, "n2"),
        served(2, 2, "n2"),
        served(3, 1, method="Heartbeat"),
        stepped(loaded=True),
        {"op": "decided", "deciding": ["n2"]},
        rested(a=[3, ["t-0"]], b=[3, ["t-1"]], c=[3, []]),
    ],
    [
        stored(1, 1, a=["t-0", "t-1"]),
        offset(5, 2),
        offset(7, 3),
        stored(3, 4, epoch=2, a=["t-0"], b=["t-1"]),
    ],
)
BAD = {
    "one_owner": [
        (
            [assigned(1, 1, "a", "t-0"), assigned(1, 1, "b", "t-0")],
            [stored(1, a=["t-0"], b=["t-0"])],
        ),
        ([assigned(1, 1, "a", "t-0"), assigned(2, 1, "a")], [stored(2)]),
        ([joined(1, 1), joined(2, 1, "b", leader="b")], []),
    ],
    "generations_never_fall": [
        ([assigned(1, 4, "a"), joined(2, 3)], [stored(4, a=[])]),
    ],
    "offsets_never_go_back": [
        ([committed(1, 5), fetched(2, -1)], [offset(5)]),
        ([committed(1, 4), committed(1, 5, "none"), fetched(2, 5), fetched(3, 4)], [offset(5)]),
        ([committed(1, 5), fetched(2, 6)], [offset(6)]),
    ],
    "acknowledged_is_durable": [
        ([assigned(1, 1, "a", "t-0")], []),
        ([assigned(1, 2, "a", "t-0")], [stored(1, a=["t-0"])]),
        ([assigned(1, 1, "a", "t-0")], [stored(1, a=["t-1"])]),
        ([assigned(1, 1, "a")], [stored(1, b=[])]),
        ([committed(1, 5)], [offset(4)]),
        ([committed(1, 5)], []),
    ],
    "one_epoch_a_range": [
        ([], [offset(1, 1, 2), offset(2, 2, 1)]),
        ([], [offset(1, 1), offset(2, 3, log_offset=1)]),
        ([], [offset(1, 1), offset(2, 2, log_offset=5)]),
    ],
    "no_needless_rebalance": [
        ([{"op": "quiet", "group": "g", "since": 1}, beaten(1, "REBALANCE_IN_PROGRESS")], []),
        ([{"op": "quiet", "group": "g", "since": 1}, beaten(1, "UNKNOWN_MEMBER_ID")], []),
    ],
    "one_leader": [
        ([served(1, 2, "n2"), served(2, 1)], []),
        ([served(1, 2, "n2"), served(2, 1, method="Heartbeat", in_session=False)], []),
        ([served(1, 2, "n2"), served(2, 2)], []),
    ],
    "nothing_unloaded_is_served": [([stepped(loaded=True), stepped(loaded=False)], [])],
    "commits_count_for_a_holding": [
        ([assigned(1, 2, "b", "t-0"), *handled(1, 5, 3)], [stored(3), offset(5, 2)]),
        ([handled(1, 5, 3)[1]], []),
    ],
    "everything_converges": [
        ([rested(a=[3, ["t-0", "t-1"]], b=None)], []),
        ([rested(a=[3, ["t-0"]], b=[2, ["t-1"]])], []),
        ([rested(a=[3, ["t-0"]], b=[3, ["t-0", "t-1"]])], []),
        ([rested(a=[3, ["t-0"]], b=[3, []])], []),
        ([rested(a=[3, ["t-0"]], b=[3, ["t-1"]], seats=2)], []),
        ([rested(a=[3, ["t-0"]], b=[3, ["t-1"]], seats=0)], []),
        ([{"op": "decided", "deciding": []}], []),
        ([{"op": "decided", "deciding": ["n1", "n2"]}], []),
    ],
    "one_worker": [
        ([worked("a", "b")], []),
        ([kept(1, 8), kept(2, 7)], []),
    ],
}


def test_a_good_history_is_good():
    assert problems(*GOOD) == []


def test_a_commit_whose_answer_is_late_may_have_been_accepted_early():
    late = {**kept(1, 7), "ended": 3.0}
    assert problems([kept(1.2, 8), late], []) == []
    assert problems([kept(1.2, 8), {**late, "began": 1.8}], [])


def test_every_claim_has_breaches_here():
    assert BAD.keys() == CLAIMS.keys()


@pytest.mark.parametrize(
    ("claim", "case"), [(claim, case) for claim, cases in BAD.items() for case in cases]
)
def test_a_breach_is_found_by_its_own_checker_alone(claim, case):
    complaints = problems(*case)
    assert complaints
    assert {what.partition(":")[0] for what in complaints} == {claim}


def test_the_program_says_what_is_wrong(tmp_path):
    history, dump = tmp_path / "history", tmp_path / "dump"
    for (lines, log), status in ((GOOD, 0), (BAD["one_owner"][0], 1)):
        history.write_text("".join(json.dumps(x) + "\n" for x in lines) + '{"op": "cut o')
        dump.write_text("".join(json.dumps(x) + "\n" for x in log))
        done = subprocess.run(
            [sys.executable, "-m", "tests.simulation.worlds.checkers.check", history, dump],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == status
        assert bool(done.stdout) == bool(status)
