"""`coordinator groups` against a real server: the words of Kafka's tool, three formats."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import shlex

import pytest

from coordinator.assignors import TopicPartition
from coordinator.cli.main import main
from coordinator.client import GroupMember
from tests.integration.waiting import until
from tests.patience import HANG_S
from tests.serving import running

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@contextlib.asynccontextmanager
async def group_with_a_member(server, group="g", instance=None, **settings):
    settings = {"instance_id": instance, "client_id": "me", **settings}
    member = GroupMember(server.address, group, {"t": 2}, **settings)
    async with member:
        while not member.assignment:
            await member.poll(timeout=5.0)
        yield member


async def command(server, line: str) -> tuple[int, str, str]:
    """Run it beside the loop that serves: the exit status, standard output and error."""
    action, *rest = shlex.split(line)
    out, err = io.StringIO(), io.StringIO()

    def run() -> int:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            return main(["groups", action, *rest, "--bootstrap", server.address])

    return await asyncio.to_thread(run), out.getvalue(), err.getvalue()


async def rows(server, line: str) -> list[dict[str, str]]:
    status, out, err = await command(server, f"{line} -o json")
    assert (status, err) == (0, "")
    return json.loads(out)


async def test_list_is_filtered_by_state_and_type():
    async with running() as server, group_with_a_member(server, "live") as member:
        await member.commit({T0: 1})
        async with group_with_a_member(server, "gone"):
            pass
        both = await rows(server, "list")
        assert [row["GROUP"] for row in both] == ["gone", "live"]
        (live,) = await rows(server, "list --state stable --type classic")
        assert live == {
            "GROUP": "live",
            "TYPE": "classic",
            "PROTOCOL": "consumer",
            "STATE": "Stable",
            "#MEMBERS": "1",
        }
        assert await rows(server, "list --type consumer") == []


async def test_describe_shows_the_lag_that_members_tell():
    told = {"log_ends": lambda keys: dict.fromkeys(keys, 70), "log_ends_interval_s": 0.05}
    async with running() as server, group_with_a_member(server, **told) as member:
        await member.commit({T0: 40})
        async with asyncio.timeout(HANG_S):
            while (row := (await rows(server, "describe g"))[0])["LAG"] == "-":
                pass
        assert (row["LOG-END-OFFSET"], row["LAG"]) == ("70", "30")
        await member.commit({T0: 75})  # The log has grown since its end was reported.
        (row, *_) = await rows(server, "describe g")
        assert (row["LOG-END-OFFSET"], row["LAG"]) == ("70", "0")


async def test_trouble_with_the_logs_ends_is_not_the_members():
    asked: list[object] = []

    def log_ends(keys):
        asked.append(keys)
        raise OSError("the disk is away")

    told = {
        "log_ends": log_ends,
        "log_ends_interval_s": 0.05,
        "session_timeout_ms": 30_000,
        "heartbeat_interval_ms": 50,
    }
    async with running() as server, group_with_a_member(server, **told) as member:
        await until(lambda: len(asked) > 5)
        assert member.assignment == {T0, T1}
        assert (await rows(server, "describe g"))[0]["LOG-END-OFFSET"] == "-"


async def test_describe_shows_offsets_lag_and_owners(tmp_path):
    logs = tmp_path / "logs.csv"
    logs.write_text("topic,partition,offset\nt,0,0\nt,0,100\n")
    async with running() as server, group_with_a_member(server) as member:
        await member.commit({T0: 40})
        first, second = await rows(server, f"describe g --log-offsets {logs}")
        assert first == {
            "GROUP": "g",
            "TOPIC": "t",
            "PARTITION": "0",
            "CURRENT-OFFSET": "40",
            "LOG-END-OFFSET": "100",
            "LAG": "60",
            "CONSUMER-ID": member.member_id,
            "HOST": "/127.0.0.1",
            "CLIENT-ID": "me",
        }
        assert (second["CURRENT-OFFSET"], second["LOG-END-OFFSET"]) == ("-", "-")
        status, table, _ = await command(server, "describe g")
        assert status == 0
        header, line, _ = table.splitlines()
        assert header.split()[:4] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET"]
        assert line.split()[:4] == ["g", "t", "0", "40"]
        assert line[header.index("LAG")] == "-"


async def test_state_and_members_with_their_assignments():
    async with running() as server, group_with_a_member(server, instance="one") as member:
        (state,) = await rows(server, "state g")
        assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "1")
        (row,) = await rows(server, "members g --verbose")
        assert row["CONSUMER-ID"] == member.member_id
        assert (row["GROUP-INSTANCE-ID"], row["#PARTITIONS"]) == ("one", "2")
        assert row["ASSIGNMENT"] == "t(0,1)"
        status, yaml, _ = await command(server, "members g -o yaml")
        assert status == 0
        assert '- "GROUP": "g"\n  "CONSUMER-ID":' in yaml


async def test_what_is_not_there_is_said_and_fails():
    async with running() as server:
        status, out, err = await command(server, "describe nobody")
        assert (status, out) == (1, "")
        assert "'nobody' does not exist" in err
        status, _, err = await command(server, "delete nobody")
        assert status == 1
        assert "GROUP_ID_NOT_FOUND" in err


def test_no_coordinator_is_said(capsys):
    assert main(["groups", "list", "--bootstrap", "127.0.0.1:1"]) == 1
    assert "no answer from 127.0.0.1:1" in capsys.readouterr().err


async def test_a_reset_is_a_dry_run_unless_it_is_executed():
    async with running() as server:
        async with group_with_a_member(server) as member:
            await member.commit({T0: 40, T1: 50})
            status, _, err = await command(server, "reset-offsets g --to-earliest --execute")
            assert status == 1
            assert "the current state is Stable" in err
        line = "reset-offsets g --topic t:0 --shift-by -15"
        planned = [{"GROUP": "g", "TOPIC": "t", "PARTITION": "0", "NEW-OFFSET": "25"}]
        assert await rows(server, line) == planned
        assert await rows(server, f"{line} --dry-run") == planned
        assert [row["CURRENT-OFFSET"] for row in await rows(server, "offsets g")] == ["40", "50"]
        assert await rows(server, f"{line} --execute") == planned
        assert [row["CURRENT-OFFSET"] for row in await rows(server, "offsets g")] == ["25", "50"]


async def test_offsets_and_groups_are_deleted():
    async with running() as server:
        async with group_with_a_member(server) as member:
            await member.commit({T0: 40, T1: 50})
            assert [row["STATUS"] for row in await rows(server, "delete-offsets g")] == [
                "GROUP_SUBSCRIBED_TO_TOPIC",
                "GROUP_SUBSCRIBED_TO_TOPIC",
            ]
        assert await rows(server, "delete-offsets g --topic t:1") == [
            {"GROUP": "g", "TOPIC": "t", "PARTITION": "1", "STATUS": "NONE"}
        ]
        assert [row["PARTITION"] for row in await rows(server, "offsets g")] == ["0"]
        assert await rows(server, "delete g") == [{"GROUP": "g", "DELETED": "yes"}]
        assert await rows(server, "list") == []


@pytest.mark.parametrize("line", ["reset-offsets g", "reset-offsets g --to-latest --to-earliest"])
def test_a_reset_has_one_target(line, capsys):
    with pytest.raises(SystemExit) as end:
        main(["groups", *shlex.split(line)])
    assert end.value.code == 2
    assert "--to-earliest" in capsys.readouterr().err


async def test_a_node_on_its_own_says_that_there_is_nobody_to_hand_over_to():
    async with running() as server:
        for line in (["elect"], ["move", "0", "1"], ["drain", "1"]):
            err = io.StringIO()

            def run(line=line, err=err) -> int:
                with contextlib.redirect_stderr(err):
                    return main(["cluster", *line, "--bootstrap", server.address])

            assert await asyncio.to_thread(run) == 1
            assert "this node has its store for itself" in err.getvalue()
