"""`coordinator groups` against a coordinator on virtual time: rows, sentences, exit statuses."""

from __future__ import annotations

import json

import grpc
import pytest

from coordinator.assignors import Subscription, TopicPartition
from coordinator.assignors.consumer_protocol import (
    Assignment,
    encode_assignment,
    encode_subscription,
)
from coordinator.cli.groups import STATES, TYPES
from coordinator.client.member.classic.declarations import encode_declaration
from coordinator.core.classic.group import ClassicGroup
from coordinator.core.group import GroupState
from coordinator.core.sessions.group import SessionGroup
from coordinator.v1 import admin_pb2 as admin
from coordinator.v1 import group_pb2 as pb
from tests.kit import requests
from tests.protocol.classic.test_offsets import consumer
from tests.unit.cli.shell import Shell

T0, T1 = ("t", 0), ("t", 1)
HARM = "g\x1b[2J\nroot# "


@pytest.fixture
def shell() -> Shell:
    return Shell(group_rebalance_journal=True)


def parts(*numbers: int) -> bytes:
    return encode_assignment(Assignment(tuple(TopicPartition("t", n) for n in numbers)))


def stable(shell: Shell, group: str = "g", instance: str | None = None) -> str:
    """A group with one member that owns t:0-1 and has committed t:0; the member's id."""
    call = shell.join(group=group, instance=instance, metadata=consumer(["t"]), client_id="etl")
    shell.advance(50)
    member = call.response.member_id
    generation = call.response.generation_id
    mine = {"group": group, "instance": instance}
    shell.sync(member, generation, {member: parts(0, 1)}, **mine)
    shell.commit({T0: 40}, member_id=member, generation=generation, **mine)
    return member


def report_end(shell: Shell, member: str, end: int, begin: int = 0, partition: int = 0) -> None:
    told = {"partition_index": partition, "log_end_offset": end, "log_begin_offset": begin}
    ends = [{"name": "t", "partitions": [told]}]
    shell.send(
        pb.ReportLogEndsRequest(group_id="g", generation_id=1, member_id=member, topics=ends)
    )


def rebalancing(shell: Shell) -> tuple[str, str]:
    """A group that waits for the second of its members: the ids of both."""
    a, b = shell.f2(client_id="etl")
    shell.commit({T0: 40}, member_id=a, generation=2)
    shell.advance(100)
    shell.join(client_id="new")
    shell.join(a, client_id="etl")
    assert shell.state == "PreparingRebalance"
    return a, b


# --- list ---------------------------------------------------------------------------------------


def test_list_has_typed_rows(shell):
    stable(shell)
    shell.commit({T0: 1}, group="bare")
    assert shell.rows("list") == [
        {"group": "bare", "type": "Classic", "protocol": None, "state": "Empty", "members": 0},
        {"group": "g", "type": "Classic", "protocol": "consumer", "state": "Stable", "members": 1},
    ]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ("--state stable", ["g"]),
        ("--state Stable,empty", ["bare", "g"]),
        ("--state Dead --state Empty", ["bare"]),
        ("--type CLASSIC", ["bare", "g"]),
        ("--state --type", ["bare", "g"]),
        ("--state PreparingRebalance", []),
    ],
)
def test_list_is_filtered_by_states_and_types(shell, filters, found):
    stable(shell)
    shell.commit({T0: 1}, group="bare")
    assert [row["group"] for row in shell.rows(f"list {filters}")] == found


def test_a_list_without_groups_has_headings_and_a_sentence(shell):
    status, out, err = shell.groups("list")
    assert (status, out.split()) == (0, ["GROUP", "TYPE", "PROTOCOL", "STATE", "#MEMBERS"])
    assert err == "There are no groups.\n"
    assert shell.groups("list --state Dead")[2] == "No group is Dead.\n"


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ("--state foo", "'foo' is no state: the states are Empty, PreparingRebalance, Completing"),
        ("--state Stable,", "is no state"),
        ("--state ''", "is no state"),
        ("--type consumer", "'consumer' is no type: the types are Classic"),
    ],
)
def test_unknown_states_and_types_are_refused_with_the_list(shell, filters, message):
    assert message in shell.refused(f"list {filters}", status=2)


def test_the_states_and_types_are_those_of_groups():
    assert set(STATES) == {state.value for state in GroupState}
    kinds = (ClassicGroup.kind, SessionGroup.kind)
    assert tuple(kind.capitalize() for kind in kinds) == TYPES


def loading(request):
    """Answers of a node that loads a shard."""
    told = {"error_code": "COORDINATOR_LOAD_IN_PROGRESS", "error_message": "it is being loaded"}
    match request:
        case admin.ListGroupsRequest():
            return admin.ListGroupsResponse(**told)
        case admin.DescribeGroupsRequest():
            return admin.DescribeGroupsResponse(groups=[told])
        case pb.OffsetFetchRequest():
            return pb.OffsetFetchResponse(**told)


@pytest.mark.parametrize(
    "line", ["list", "describe --all", "describe g", "members g", "reset-offsets g --to-current"]
)
def test_a_group_that_is_being_loaded_is_not_taken_for_one_that_is_not_there(shell, line):
    stable(shell)
    shell.faults = loading
    assert "it is being loaded" in shell.refused(line)


# --- Which groups -------------------------------------------------------------------------------


@pytest.mark.parametrize("action", ["describe", "state", "members", "offsets"])
def test_groups_are_named_or_all_or_match(shell, action):
    for group in ("orders-1", "orders-2", "bills"):
        stable(shell, group)

    def found(which: str) -> list[str]:
        return sorted({row["group"] for row in shell.rows(f"{action} {which}")})

    assert found("bills orders-1 bills") == ["bills", "orders-1"]
    assert found("--all") == ["bills", "orders-1", "orders-2"]
    assert found("--regex '^orders-[0-9]$'") == ["orders-1", "orders-2"]
    assert "No group matches '^x'; the groups are bills" in shell.refused(f"{action} --regex ^x")
    for wrong in ("", "bills --all", "--all --regex x"):
        message = shell.refused(f"{action} {wrong}", status=2)
        assert "either --all or --regex PATTERN" in message
    assert "is no regular expression" in shell.refused(f"{action} --regex 'x['", status=2)
    assert "must not be empty" in shell.refused(f"{action} ''", status=2)
    assert "is not text in UTF-8" in shell.refused(f"{action} \udcff")


@pytest.mark.parametrize("action", ["describe", "state", "members", "offsets"])
def test_of_several_groups_one_that_is_missing_fails_beside_the_others(shell, action):
    stable(shell, "orders")
    expected = "Consumer group 'ordres' does not exist; the groups are orders."
    status, out, err = shell.groups(f"{action} orders ordres -o json")
    assert status == 1
    assert {row["group"] for row in json.loads(out)} == {"orders"}
    assert expected in err
    assert expected in shell.refused(f"{action} ordres")
    assert shell.refused(f"{action} ordres odrers").count("does not exist") == 2


def test_the_nearest_names_come_first(shell):
    for group in ("alpha", "orders", "zeta"):
        stable(shell, group)
    assert "the groups are orders, alpha, zeta." in shell.refused("state ordres")


@pytest.mark.parametrize("command", ["explain", "timeline", "who-blocks"])
def test_other_commands_say_which_groups_there_are_too(shell, command):
    stable(shell, "orders")
    status, out, err = shell.command(f"{command} ordres")
    assert (status, out) == (1, "")
    assert err == "coordinator: Consumer group 'ordres' does not exist; the groups are orders.\n"


def test_no_groups_at_all_is_said(shell):
    assert "does not exist: there are no groups." in shell.refused("describe nobody")
    status, _, err = shell.groups("describe --all")
    assert (status, err) == (0, "There are no groups.\n")


# --- describe -----------------------------------------------------------------------------------


def test_describe_shows_offsets_lag_and_owners(shell):
    member = stable(shell)
    report_end(shell, member, 100)
    first, second = shell.rows("describe g")
    assert first == {
        "group": "g",
        "topic": "t",
        "partition": 0,
        "current_offset": 40,
        "log_end_offset": 100,
        "lag": 60,
        "log_is_short": False,
        "consumer_id": member,
        "host": "/127.0.0.1",
        "client_id": "etl",
        "client_software": None,
        "group_instance_id": None,
        "state": "Stable",
        "rebalancing_since_ms": None,
        "waited_for": False,
        "last_seen_ms": None,
    }
    assert (second["partition"], second["current_offset"], second["lag"]) == (1, None, None)
    table = shell.groups("describe g")[1].splitlines()
    assert table[0].split() == [
        "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID",
        "HOST", "CLIENT-ID",
    ]  # fmt: skip
    assert table[2].split()[3:6] == ["-", "-", "-"]


def test_the_library_of_a_kafka_client_has_a_column_where_there_is_one(shell):
    member = stable(shell)
    for line in ("describe g", "members g", "members g --verbose"):
        assert "CLIENT-SOFTWARE" not in shell.groups(line)[1]
    shell.c.shard.machine.groups["g"].members[member].client_software = "librdkafka 2.16.1\x1b"
    for line in ("describe g", "members g", "members g --verbose"):
        head, row, *_ = shell.groups(line)[1].splitlines()
        assert head.split()[-1] == "CLIENT-SOFTWARE"
        assert row.endswith("  librdkafka 2.16.1\\x1b")
        assert shell.rows(line)[0]["client_software"] == "librdkafka 2.16.1\x1b"


def test_no_lag_is_negative(shell):
    report_end(shell, stable(shell), 30)  # Reported before the commit.
    assert shell.rows("describe g")[0]["lag"] == 0


def test_lag_of_a_log_whose_first_rows_are_gone_counts_from_its_begin(shell):
    member = stable(shell)
    report_end(shell, member, 1_000_050, 1_000_000)
    assert shell.rows("describe g")[0]["lag"] == 50  # 40 was committed before the log was trimmed.
    report_end(shell, member, 1_000_050, 1_000_000, partition=1)
    assert [row["lag"] for row in shell.rows("describe g")] == [50, 50]


def test_a_log_that_ends_before_what_is_committed_is_named(shell):
    member = stable(shell)
    report_end(shell, member, 30)  # The member may have looked before rows came.
    assert not shell.rows("describe g")[0]["log_is_short"]
    report_end(shell, member, 30)
    assert shell.rows("describe g")[0]["log_is_short"]
    warnings = shell.groups("describe g")[2]
    assert warnings.startswith(
        "The log of t-0 ends at 30, and 40 is committed: it was made anew or"
    )
    report_end(shell, member, 41)
    assert "ends at" not in shell.groups("describe g")[2]


def test_rows_that_were_committed_since_a_member_looked_make_no_log_short(shell):
    member = stable(shell)
    report_end(shell, member, 41)
    shell.commit({T0: 60}, member_id=member, generation=1)
    report_end(shell, member, 50)
    assert not shell.rows("describe g")[0]["log_is_short"]


def test_an_offset_that_was_set_back_makes_no_log_short(shell):
    member = stable(shell)
    report_end(shell, member, 30)
    shell.commit({T0: 20}, member_id=member, generation=1)
    report_end(shell, member, 30)
    assert not shell.rows("describe g")[0]["log_is_short"]


def test_a_topic_that_a_static_member_has_added_and_nobody_is_assigned_is_named(shell):
    """Faithful to Kafka: its return begins no rebalance, and its new subscription waits for one."""
    stable(shell, instance="i")
    expected = "nobody is assigned 'new', which 'i' subscribed to"
    assert expected not in shell.groups("describe g")[2]
    shell.join(instance="i", metadata=consumer(["t", "new"]), client_id="etl")
    assert shell.state == "Stable"
    assert expected in shell.groups("describe g")[2]
    assert expected in shell.command("explain g")[1]


def test_describe_takes_ends_from_a_file(shell, tmp_path):
    stable(shell)
    logs = tmp_path / "logs.csv"
    logs.write_text("topic,partition,offset\nt,0,0\nt,0,100\nt,1,7\n")
    assert [row["lag"] for row in shell.rows(f"describe g --log-offsets {logs}")] == [60, 7]


def test_describe_of_an_empty_group_says_so(shell):
    shell.leave(stable(shell))
    status, out, err = shell.groups("describe g")
    assert (status, len(out.splitlines())) == (0, 2)
    assert err == "Consumer group 'g' has no active members.\n"
    shell.rows("delete-offsets g --all-topics")
    shell.leave(stable(shell))
    shell.rows("delete-offsets g --all-topics")
    status, out, err = shell.groups("describe g")
    assert (status, len(out.splitlines())) == (0, 1)
    assert err == (
        "Consumer group 'g' has no members and no committed offsets; its state is Empty.\n"
    )


def test_describe_of_a_rebalancing_group_shows_members_and_whom_it_waits_for(shell):
    a, b = rebalancing(shell)
    rows = {row["consumer_id"]: row for row in shell.rows("describe g")}
    assert rows[None]["current_offset"] == 40
    assert {id: row["waited_for"] for id, row in rows.items() if id} == {
        a: False,
        b: True,
        next(id for id in rows if id and id not in (a, b)): False,
    }
    assert rows[b]["topic"] is None
    assert (rows[b]["client_id"], rows[b]["state"]) == ("etl", "PreparingRebalance")
    assert rows[b]["rebalancing_since_ms"] == shell.c.now_ms
    assert rows[b]["last_seen_ms"] == shell.c.now_ms - 100
    status, out, err = shell.groups("describe g")
    assert status == 0
    assert out.splitlines()[0].split()[-2:] == ["STATE", "WAITED-FOR"]
    assert any(b in line and line.endswith("yes") for line in out.splitlines())
    assert "'g' is PreparingRebalance since" in err
    assert "waits until" in err
    assert "for 1 of 3 members: 'etl' on /127.0.0.1 (seen" in err


def test_a_member_id_that_was_handed_out_is_waited_for(shell):
    shell.f1()
    pending = shell.join(two_phase=True).response.member_id
    shell.leave()
    shell.join(shell.members()[0], metadata=b"new")
    (row,) = [row for row in shell.rows("members g") if row["consumer_id"] == pending]
    assert (row["client_id"], row["host"], row["waited_for"]) == (None, None, True)
    assert row["last_seen_ms"] is None
    assert f"'{pending}' (has not joined yet)" in shell.groups("members g")[2]


def test_the_initial_delay_and_the_log_are_named_where_no_member_is_waited_for(shell):
    shell.join()
    assert "for more first members (the initial delay)" in shell.groups("describe g")[2]
    (row,) = shell.rows("describe g")
    assert row["waited_for"] is False
    shell.advance(50)
    shell.c.hold_appends()
    shell.sync(shell.members()[0], 1, {})
    assert "CompletingRebalance" in shell.groups("describe g")[2]
    assert shell.groups("describe g")[2].endswith("for its log.\n")


def test_of_many_awaited_members_a_sentence_names_five():
    shell = Shell(group_max_size=100)
    for number in range(9):
        shell.join(client_id=f"c{number}")
    shell.advance(200)
    warnings = shell.groups("describe g")[2]
    assert "for 9 of 9 members: 'c0'" in warnings
    assert warnings.rstrip().endswith("and 4 more.")


def counting(counts: dict[str, int]) -> bytes:
    """Metadata of a member of this library that declares counts."""
    said = encode_declaration([counts[topic] for topic in sorted(counts)], ())
    return encode_subscription(Subscription(tuple(counts), user_data=said))


def members_with(shell: Shell, *metadata: bytes) -> str:
    """A stable group of static members w0, w1 and so on, the first of which leads; their notes."""
    for number, each in enumerate(metadata):
        shell.join(instance=f"w{number}", metadata=each, client_id="etl")
    shell.advance(200)
    leader = shell.members()[0]
    for number, member in enumerate(shell.members()):
        shell.sync(member, 1, {} if member == leader else None, instance=f"w{number}")
    assert shell.state == "Stable"
    assert shell.groups("members g")[2] == shell.groups("describe g")[2]
    return shell.groups("describe g")[2]


def test_members_that_count_a_topic_differently_are_named(shell):
    warnings = members_with(shell, *(counting({"t": count, "u": 1}) for count in (6, 4, 6)))
    assert warnings == (
        "In consumer group 'g' members declare different numbers of partitions of t: 4 by w1, "
        "6 by w0, w2; 6 are assigned.\n"
    )


def test_members_that_count_alike_or_other_topics_have_no_sentence(shell):
    assert members_with(shell, counting({"t": 4}), counting({"t": 4}), counting({"u": 1})) == ""


def test_a_topic_that_no_member_declares_is_named_if_the_leader_declares(shell):
    assert members_with(shell, counting({"t": 4}), consumer(["t", "x"])) == (
        "In consumer group 'g' no member declares the number of partitions of x, so none is "
        "assigned; subscribed: w1.\n"
    )


def test_nothing_is_said_of_what_a_leader_of_another_library_assigns(shell):
    warnings = members_with(shell, consumer(["x"]), counting({"t": 4}), counting({"t": 2}))
    assert warnings.endswith(
        "members declare different numbers of partitions of t: 2 by w2, 4 by w1.\n"
    )


def test_of_many_differences_five_topics_are_named_with_few_members():
    shell = Shell(group_max_size=100)
    warnings = members_with(shell, *(counting(dict.fromkeys("abcdefg", n)) for n in range(1, 10)))
    assert warnings.count("declare different") == 5
    assert "of a: 1 by w0, 2 by w1, 3 by w2 and 6 more; 9 are assigned." in warnings
    assert warnings.endswith("So it is with 2 more topics.\n")


@pytest.mark.parametrize("harm", [b"", b"\0\3", b"\xff" * 40, counting({"t": 4})[:-1]])
def test_metadata_that_nobody_can_read_declare_nothing(shell, harm):
    assert members_with(shell, counting({"t": 6}), harm) == ""


def test_topics_that_mean_harm_are_escaped_and_cut(shell):
    warnings = members_with(shell, *(counting({HARM * 1_000: count}) for count in (1, 2)))
    assert "\x1b" not in warnings
    assert warnings.count("\n") == 1
    assert 500 < len(warnings) < 1_100


def test_a_large_group_is_described_and_removed():
    shell = Shell(group_max_size=400)
    for _ in range(400):
        shell.c.send(requests.join())
    shell.c.advance(200)
    rows = shell.rows("describe g")
    assert (len(rows), sum(row["waited_for"] for row in rows)) == (400, 400)
    assert len(shell.rows("remove-member g --all")) == 400
    assert shell.rows("state g")[0]["members"] == 0


@pytest.mark.parametrize("action", ["describe --summary", "state"])
def test_a_summary_has_one_row_for_each_group(shell, action):
    member = stable(shell)
    report_end(shell, member, 100)
    (row,) = shell.rows(f"{action} g")
    assert row == {
        "group": "g",
        "coordinator": "localhost:0",
        "assignment_strategy": "range",
        "state": "Stable",
        "generation": 1,
        "members": 1,
        "partitions": 2,
        "total_lag": 60,
        "partitions_without_lag": 1,
        "rebalancing_since_ms": None,
        "waits_until_ms": None,
        "waits_for": [],
    }
    status, out, err = shell.groups(f"{action} g")
    assert status == 0
    assert out.split()[:7] == [
        "GROUP", "COORDINATOR", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS", "#PARTITIONS",
        "TOTAL-LAG",
    ]  # fmt: skip
    assert "TOTAL-LAG leaves out 1 partitions" in err


def test_a_summary_of_a_rebalancing_group_names_whom_it_waits_for(shell):
    _, b = rebalancing(shell)
    (row,) = shell.rows("state g")
    assert (row["state"], row["assignment_strategy"], row["total_lag"]) == (
        "PreparingRebalance",
        None,
        None,
    )
    now = shell.c.now_ms
    assert (row["rebalancing_since_ms"], row["waits_until_ms"]) == (now, now + 500)
    assert row["waits_for"] == [
        {"consumer_id": b, "client_id": "etl", "host": "/127.0.0.1", "last_seen_ms": now - 100}
    ]


# --- members, offsets ---------------------------------------------------------------------------


def test_members_with_their_assignments(shell):
    member = stable(shell, instance="box-1")
    (row,) = shell.rows("members g")
    assert row == {
        "group": "g",
        "consumer_id": member,
        "group_instance_id": "box-1",
        "host": "/127.0.0.1",
        "client_id": "etl",
        "client_software": None,
        "partitions": 2,
        "assignment": [{"topic": "t", "partitions": [0, 1]}],
        "leader": True,
        "state": "Stable",
        "rebalancing_since_ms": None,
        "waited_for": False,
        "last_seen_ms": None,
    }
    assert "ASSIGNMENT" not in shell.groups("members g")[1]
    assert shell.groups("members g --verbose")[1].splitlines()[1].endswith("t(0,1)")


def test_assignments_that_are_in_no_known_format_are_null(shell):
    shell.f1()
    (row,) = shell.rows("members g")
    assert (row["partitions"], row["assignment"]) == (None, None)


def test_members_and_offsets_that_are_not_there_are_a_sentence(shell):
    shell.leave(stable(shell))
    assert shell.groups("members g")[2] == (
        "Consumer group 'g' has no members; its state is Empty.\n"
    )
    assert shell.rows("members g") == []
    shell.rows("delete-offsets g --topic t")
    assert shell.groups("offsets g")[2].startswith("Consumer group 'g' has no committed offsets")
    shell.leave(stable(shell, "h"), group="h")
    assert shell.groups("members --all")[2] == "None of the 2 groups has members.\n"


def test_offsets(shell):
    stable(shell)
    assert shell.rows("offsets g") == [
        {"group": "g", "topic": "t", "partition": 0, "current_offset": 40}
    ]


# --- remove-member ------------------------------------------------------------------------------


def test_a_member_is_removed_and_the_journal_says_who_did_it(shell):
    a, b = shell.f2(client_id="etl")
    assert shell.rows(f"remove-member g --member-id {b} --reason 'it hangs'") == [
        {
            "group": "g",
            "consumer_id": b,
            "group_instance_id": None,
            "host": "/127.0.0.1",
            "client_id": "etl",
            "error": None,
            "error_code": None,
        }
    ]
    shell.join(a, client_id="etl")
    shell.sync(a, 3, {})
    (newest, *_) = shell.send(admin.ListRebalancesRequest(group_id="g")).response.rebalances
    assert (newest.cause, newest.reason) == ("removed by an operator", "it hangs")


def test_static_members_are_removed_by_their_instance_ids(shell):
    leader, follower = shell.s2()
    rows = shell.rows("remove-member g --instance-id F --instance-id L --instance-id F")
    assert [(row["consumer_id"], row["group_instance_id"]) for row in rows] == [
        (follower, "F"),
        (leader, "L"),
    ]
    assert shell.state == "Empty"


def test_all_members_are_removed_static_ones_by_their_instance_ids(shell):
    leader, follower = shell.s2()
    rows = shell.rows("remove-member g --all")
    assert {row["consumer_id"]: row["group_instance_id"] for row in rows} == {
        leader: "L",
        follower: "F",
    }
    status, out, err = shell.groups("remove-member g --all")
    assert (status, len(out.splitlines())) == (0, 1)
    assert err == "Consumer group 'g' has no members; its state is Empty.\n"


def test_members_that_are_not_there_fail_beside_the_others(shell):
    a, _b = shell.f2()
    first, second = shell.rows(f"remove-member g --member-id {a} --member-id nobody", status=1)
    assert (first["error"], second["error_code"]) == (None, "UNKNOWN_MEMBER_ID")
    assert second["error"].startswith("Consumer group 'g' has no member 'nobody'; its members are ")
    assert (second["host"], second["client_id"]) == (None, None)
    (row,) = shell.rows("remove-member g --instance-id box-1", status=1)
    assert row["error"] == "Consumer group 'g' has no member 'box-1'; it has none."
    assert "does not exist" in shell.refused("remove-member nobody --all")


@pytest.mark.parametrize(
    "line",
    ["g", "--all", "g --member-id", "g --member-id ''", "g --all --member-id m", "g h --all"],
)
def test_a_removal_names_one_group_and_says_whom(shell, line):
    shell.refused(f"remove-member {line}", status=2)


# --- delete -------------------------------------------------------------------------------------


def test_each_group_of_a_deletion_has_its_row(shell):
    stable(shell)
    shell.commit({T0: 1}, group="idle")
    rows = shell.rows("delete g idle nobody idle", status=1)
    assert [(row["group"], row["error_code"]) for row in rows] == [
        ("g", "NON_EMPTY_GROUP"),
        ("idle", None),
        ("nobody", "GROUP_ID_NOT_FOUND"),
    ]
    assert [row["error"] for row in rows] == [
        "Consumer group 'g' has members: stop them first.",
        None,
        "Consumer group 'nobody' does not exist; the groups are g.",
    ]
    assert [row["group"] for row in shell.rows("list")] == ["g"]
    shell.refused("delete", status=2)


class Failed(grpc.RpcError):
    def code(self):
        return grpc.StatusCode.PERMISSION_DENIED

    def details(self):
        return "bob may not admin on group 'b'"


def test_a_deletion_that_ends_half_way_tells_what_was_done(shell):
    for group in "abc":
        shell.commit({T0: 1}, group=group)

    def faults(request):
        if getattr(request, "groups_names", None) == ["b"]:
            raise Failed

    shell.faults = faults
    rows = shell.rows("delete a b c", status=1)
    assert [row["error"] is None for row in rows] == [True, False, True]
    assert "bob may not admin" in rows[1]["error"]
    assert "bob may not admin" in shell.refused("delete b")


def test_a_deletion_that_is_done_is_status_0(shell):
    shell.commit({T0: 1}, group="idle")
    assert shell.groups("delete idle")[:2] == (0, "GROUP  STATUS\nidle   done\n")


# --- delete-offsets -----------------------------------------------------------------------------


def test_offsets_of_a_subscribed_topic_are_not_deleted(shell):
    member = stable(shell)
    (row,) = shell.rows("delete-offsets g --topic t:0", status=1)
    assert row == {
        "group": "g",
        "topic": "t",
        "partition": 0,
        "error": "Members are subscribed to 't': stop them first.",
        "error_code": "GROUP_SUBSCRIBED_TO_TOPIC",
    }
    shell.leave(member)
    (row,) = shell.rows("delete-offsets g --topic t:0")
    assert (row["error"], row["error_code"]) == (None, None)
    assert shell.rows("offsets g") == []


def test_offsets_of_ranges_are_deleted(shell):
    shell.commit({("t", n): 1 for n in range(9)})
    assert [row["partition"] for row in shell.rows("delete-offsets g --topic t:0-2,7")] == [
        *(0, 1, 2, 7)
    ]
    assert [row["partition"] for row in shell.rows("offsets g")] == [3, 4, 5, 6, 8]
    shell.rows("delete-offsets g --all-topics")
    status, _, err = shell.groups("delete-offsets g --all-topics")
    assert (status, err) == (0, "Consumer group 'g' has no committed offsets.\n")


@pytest.mark.parametrize("line", ["g", "--topic t", "g --topic t:", "g --topic t --all-topics"])
def test_a_deletion_of_offsets_says_which(shell, line):
    shell.refused(f"delete-offsets {line}", status=2)


def test_offsets_of_what_is_not_there_are_not_deleted(shell):
    shell.commit({T0: 1})
    assert "No offset of topic 'u' is committed" in shell.refused("delete-offsets g --topic u")
    assert "does not exist" in shell.refused("delete-offsets nobody --topic t:0")


# --- reset-offsets ------------------------------------------------------------------------------


def test_a_reset_is_a_dry_run_unless_it_is_executed(shell):
    shell.commit({T0: 40, T1: 50})
    line = "reset-offsets g --topic t:0 --shift-by -15"
    planned = {
        "group": "g",
        "topic": "t",
        "partition": 0,
        "current_offset": 40,
        "new_offset": 25,
        "executed": False,
    }
    assert shell.rows(line) == shell.rows(f"{line} --dry-run") == [planned]
    assert [row["current_offset"] for row in shell.rows("offsets g")] == [40, 50]
    assert "Dry run: no offset was changed" in shell.groups(line)[2]
    assert shell.rows(f"{line} --execute") == [{**planned, "executed": True}]
    assert [row["current_offset"] for row in shell.rows("offsets g")] == [25, 50]
    assert [r["new_offset"] for r in shell.rows("reset-offsets g --all-topics --to-current")] == [
        *(25, 50)
    ]


def test_a_live_group_is_told_of_in_the_dry_run_and_refused_in_the_execution(shell):
    stable(shell)
    warning = "the current state is Stable, with 1 member: stop them first."
    status, out, err = shell.groups("reset-offsets g --to-current -o json")
    assert (status, len(json.loads(out))) == (0, 1)
    assert warning in err
    assert warning in shell.refused("reset-offsets g --to-current --execute")


def test_a_member_that_joins_after_the_check_has_the_reset_refused(shell, monkeypatch):
    shell.commit({T0: 40})
    monkeypatch.setattr("coordinator.cli.reset.live_warning", lambda *group: None)
    shell.join()
    message = shell.refused("reset-offsets g --to-offset 3 --execute")
    assert "Nothing was reset: stop the group's members first." in message
    shell.advance(5_000)
    assert [row["current_offset"] for row in shell.rows("offsets g")] == [40]


def test_an_offset_that_moves_after_the_plan_has_the_reset_refused(shell, monkeypatch):
    shell.commit({T0: 40, T1: 50})
    monkeypatch.setattr(
        "coordinator.cli.reset.live_warning", lambda *group: shell.commit({T0: 41}) and None
    )
    message = shell.refused("reset-offsets g --to-offset 3 --execute")
    assert "Nothing was reset: an offset has changed since it was read" in message
    assert [row["current_offset"] for row in shell.rows("offsets g")] == [41, 50]


def test_an_export_is_taken_back(shell, tmp_path):
    shell.commit({T0: 40, T1: 50})
    status, out, _ = shell.groups("reset-offsets g --to-current --export")
    assert (status, out) == (0, "t,0,40\nt,1,50\n")
    file = tmp_path / "offsets.csv"
    file.write_text(out)
    shell.rows("reset-offsets g --to-offset 1 --execute")
    rows = shell.rows(f"reset-offsets g --from-file {file} --execute")
    assert [(row["current_offset"], row["new_offset"]) for row in rows] == [(1, 40), (1, 50)]
    (row, _) = shell.rows(f"reset-offsets new --from-file {file}")
    assert (row["current_offset"], row["new_offset"]) == (None, 40)


def test_offsets_are_reset_by_time(shell, tmp_path, monkeypatch):
    shell.commit({T0: 40})
    logs = tmp_path / "logs.csv"
    logs.write_text("topic,partition,offset,timestamp_ms\nt,0,0,0\nt,0,60,3600000\nt,0,90,7200000")
    monkeypatch.setattr("coordinator.cli.group_changes.time.time", lambda: 7_200.0)

    def new(target: str) -> list[int]:
        rows = shell.rows(f"reset-offsets g {target} --log-offsets {logs}")
        return [row["new_offset"] for row in rows]

    assert new("--by-duration PT1H30M") == [60]
    assert new("--by-duration P1D") == [0]
    assert new("--to-datetime 1970-01-01T01:00:00") == [60]
    assert new("--to-datetime 1970-01-01T03:30:00.5+02:00") == [90]
    assert new("--to-earliest") == [0]
    assert new("--to-latest") == [90]


def test_a_new_group_is_made_by_partitions_that_are_named_alone(shell):
    line = "reset-offsets new --topic t:0 --to-offset 3"
    assert "'new' does not exist: --execute creates it" in shell.groups(line)[2]
    assert shell.rows("list") == []
    shell.rows(f"{line} --execute")
    assert [row["group"] for row in shell.rows("list")] == ["new"]
    for wrong in ("nwe --to-offset 3", "nwe --topic t --to-offset 3"):
        assert "'nwe' does not exist; the groups are new." in shell.refused(
            f"reset-offsets {wrong}"
        )


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ("g", 2, "--to-earliest"),
        ("g --to-latest --to-earliest", 2, "not allowed with argument"),
        ("g --to-offset 1 --dry-run --execute", 2, "not allowed with argument"),
        ("g --to-offset 1 --topic t --all-topics", 2, "not allowed with argument"),
        ("g --to-offset -1", 2, "'-1' is no offset"),
        ("g --to-offset 9223372036854775808", 2, "is no offset"),
        ("g --to-offset 1.5", 2, "is no offset"),
        ("g --shift-by 1e3", 2, "is no number of rows"),
        ("g --shift-by 9223372036854775808", 2, "is no number of rows"),
        ("g --to-datetime yesterday", 2, "YYYY-MM-DDTHH:MM:SS"),
        ("g --by-duration 1h", 2, "PnDTnHnMnS"),
        ("g --to-offset 1 --topic t:3-0", 2, "runs backwards"),
        ("g --to-offset 1 --topic t:-1", 2, "no partition and no range"),
        ("g --to-current --export -o json", 2, "--export prints CSV"),
        ("g --from-file x.csv --topic t", 2, "--from-file names the partitions"),
        ("'' --to-offset 1", 2, "must not be empty"),
        ("g --to-earliest", 1, "the start of the log of t-0 is unknown"),
        ("g --to-latest", 1, "the end of the log of t-0 is unknown"),
        ("g --shift-by -41", 1, "t-0: -1 is no offset"),
        ("g --to-offset 1 --topic u", 1, "No offset of topic 'u' is committed"),
        ("g --to-current --topic u:0", 1, "u-0 has no committed offset"),
        ("g --from-file nowhere.csv", 1, "nowhere.csv: No such file"),
        ("g --to-earliest --log-offsets nowhere.csv", 1, "nowhere.csv: No such file"),
    ],
)
def test_a_reset_that_cannot_be_is_refused_in_a_sentence(shell, line, status, message):
    shell.commit({T0: 40})
    assert message in shell.refused(f"reset-offsets {line}", status=status)


# --- Harm ---------------------------------------------------------------------------------------


def test_names_that_mean_harm_are_escaped_for_people_and_exact_for_programs(shell):
    call = shell.join(group=HARM, client_id=HARM)
    lines = [f"{action} --all" for action in ("describe", "members", "offsets", "state")]
    for line in (*lines, "list", f"delete '{HARM}'", f"describe '{HARM}x'"):
        _, out, err = shell.groups(line)
        assert all(char.isprintable() or char == "\n" for char in out + err)
        assert "\nroot" not in out + err
    assert shell.rows("members --all")[0]["client_id"] == HARM
    assert not call.done


def test_an_export_is_exact_for_programs_and_harmless_on_a_terminal(shell):
    shell.commit({(HARM, 0): 1})
    line = "reset-offsets g --to-current --export"
    assert shell.groups(line)[1] == f'"{HARM}",0,1\n'
    shell.is_terminal = True
    shown = shell.groups(line)[1]
    assert "\x1b[2J" not in shown
    assert "\\x1b[2J" in shown
