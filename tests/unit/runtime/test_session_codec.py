"""Records of session groups, as bytes and back."""

from __future__ import annotations

import pytest

from coordinator.core.sessions.holdings import grant_bytes
from coordinator.core.sessions.snapshot import CHUNK
from coordinator.core.values import plan_journal as j
from coordinator.core.values import records as r
from coordinator.core.values.policy import Mode, OnStall, Policy
from coordinator.runtime.codec import decode, encode

MEMBER = r.SessionMemberStored(
    "g", "m-1", "w-a", "5e", "1c", 17, "anna", "c", "/127.0.0.1", 10_000, (("t", 4), ("u", 2)),
    0.5, 7, 5_000, "eu-1", "v2", "web", leaves=True,
)  # fmt: skip
LINE = j.HandoffLine(
    1 << 40, "m-1", "copy", "balance", 2, 3, 4, 5, 6, 7, 8, j.HandoffOutcome.FORCED,
    j.WorkStop(j.StoppedBy.FORCED, 9, 10),
)  # fmt: skip
RECORDS = [
    MEMBER,
    r.SessionMemberStored("g", "m-2", "", "s", "i", 0, "", "", "", 2_000, ()),
    *(r.SessionMemberEnded("g", "m-1", cause, 5, 60_000) for cause in r.EndCause),
    r.PartitionsGranted(
        "g", (r.Grant("m-1", "t", ((0, 0), (2, 9)), 1 << 52), r.Grant("m-2", "u", ((3, 3),), 7))
    ),
    *(r.PhaseEntered("g", "t", 3, phase, 1 << 40, "m-2", 30_000, 70) for phase in r.Phase),
    r.PartitionSwitched("g", "t", 3),
    r.PhaseEntered("g", "t", 3, r.Phase.DRAIN, 1, "m-2", 30_000, line=j.HandoffLine(1, "m-1")),
    r.PartitionSwitched("g", "t", 3, "m-2", 9, LINE),
    r.PartitionSwitched("g", "t", 3, line=j.HandoffLine(
        1, "m-1", opened_at_ms=0, stop=j.WorkStop(j.StoppedBy.NOT_SEEN, -1, 10)
    )),
    r.HandoffsEnded("g", (
        r.PartitionSwitched("g", "t", 3, "m-2", 9, LINE),
        r.PhaseEntered("g", "t", 3, r.Phase.HELD, line=j.HandoffLine(1, "m-1")),
    )),
    j.PlanRecord("g", (), 0, -1, 5, 0, 0),
    j.PlanRecord(
        "g", (j.PlanTrigger(j.TriggerCause.MEMBER_DIED, "m-1"),), 12, 3, 103, 2, 50_000,
        (("free", 3), ("balance", 1)), (("capacity", 2),),
        (
            j.PlannedMove("t", ((0, 0), (4, 5)), "m-1", "m-2", "free", j.WorkStop(
                j.StoppedBy.LAST_SEEN, 1, 2
            )),
            j.PlannedMove("t", ((9, 9),), "m-2", "", "no_longer_declared"),
        ),
        7, j.Unowned(3, 102, 306, 101, 303), (j.PartlyDeclared("t", 4, 9, ("m-1", "m-2"), 7),),
        refusing_members=3,
    ),
    r.ReservationFreed("g", "w-a"),
    r.PolicyStored("g", Policy()),
    r.PolicyStored("g", Policy(lease_ms=3_000, mode=Mode.COPY, initial_delay_ms=0,
                               on_stall=OnStall.DRAIN, sinks_check_tokens=True)),
    r.TokenFloor(1 << 52, 1 << 50),
    r.NumbersRaised(1 << 30, 1 << 52),
    r.HoldingsStored("g", "t", 2_000, (1, 1, 2, 0, 0, 1, 1), (7, 8, 9, 0, 0, 1 << 52, 3)),
    r.ReservationStored("g", "w-a", 60_000, (("t", ((0, 0), (4, 9))), ("u", ((3, 3),)))),
    r.ReservationStored("g", "w-b", 2_000, (("t", ((1, 1),)),), is_delayed=True),
]  # fmt: skip


def test_every_kind_of_record_is_tried():
    assert {type(record) for record in RECORDS} == set(r.SessionRecord.__args__)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_as_it_was(record):
    assert decode(encode(record)) == record


@pytest.mark.parametrize(
    "partitions",
    [
        ((0, 0),),
        ((0, 249_999),),
        tuple((p, p) for p in range(0, 250_000, 2)),
        tuple((p, p) for p in range(0, 2_000_000, 20_000)),
    ],
    ids=["one", "a-range", "each-second", "far-apart"],
)
@pytest.mark.parametrize("name", ["t", "n" * 249, "\N{SNOWMAN}" * 249], ids=["t", "ascii", "wide"])
def test_a_grant_takes_no_more_bytes_than_is_thought(name, partitions):
    grant = r.Grant(name, name, partitions, (1 << 53) - 250_000)
    one, two = (len(encode(r.PartitionsGranted("g", (grant,) * n))) for n in (1, 2))
    most = grant_bytes(name, name, partitions)
    assert two - one <= most
    assert one <= most + len("g")


def test_grants_of_fifty_thousand_partitions_fit_into_half_a_mebibyte():
    grants = tuple(
        r.Grant(f"w-{n:04}-00000000-0000-4000-8000-{n:012}", "orders", tuple(
            (p, p) for p in range(n, 50_000, 1_000)
        ), 1 + 50 * n)
        for n in range(1_000)
    )  # fmt: skip
    assert len(encode(r.PartitionsGranted("g", grants))) <= 512 * 1024


@pytest.mark.parametrize("are_mixed", [False, True], ids=["as-planned", "each-moved-by-itself"])
def test_holdings_of_fifty_thousand_partitions_fit_into_half_a_mebibyte(are_mixed):
    """Whether a plan has granted them all, or each was handed over alone in another second."""
    size = 0
    for begin in range(0, 50_000, CHUNK):
        partitions = range(begin, begin + CHUNK)
        holders = tuple(1 + partition % 1_000 for partition in partitions)
        tokens = tuple(
            (1_790_000_000 + partition * 7_919 % 86_400 << 20) + 5 if are_mixed
            else 1 + 50 * (partition % 1_000) + partition // 1_000
            for partition in partitions
        )  # fmt: skip
        size += len(encode(r.HoldingsStored("g", "orders", begin, holders, tokens)))
    assert size <= 512 * 1024
