"""Workers with the URL of a PostgreSQL database and no server: several nodes, run by processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket

import grpc
import psycopg
import pytest

from coordinator.cli.main import main
from coordinator.client import CannotEmbed, Credentials, NoNode, NotReachable, embedded
from coordinator.client.embedding.nodes import shown
from coordinator.operator.admin import GroupAdmin
from coordinator.operator.health import SERVING, Health
from tests.integration.embedded.programs import PARTITIONS, STAND, program, takes
from tests.integration.waiting import wait_until


@pytest.fixture
def url(postgres, request):
    return postgres.url("primary", cluster=f"c{abs(hash(request.node.name)) % 10**8}")


def nodes_of(url: str, capsys) -> dict:
    capsys.readouterr()
    assert main(["store", "nodes", url]) == 0
    return json.loads(capsys.readouterr().out)


def rows(url: str, statement: str) -> list[tuple]:
    with psycopg.connect(url.partition("?")[0], autocommit=True) as connection:
        cluster = url.partition("cluster=")[2]
        connection.execute(f'SET search_path = "{cluster}"')
        return connection.execute(statement).fetchall()


def listens(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def test_a_node_a_process_up_to_as_many_as_asked_for_and_one_token_for_all(url, capsys):
    with contextlib.ExitStack() as stack:
        them = [stack.enter_context(program(url, STAND)) for _ in range(5)]
        tokens = {process.until("found")[2] for process in them}
        wait_until(lambda: sum(bool(process.logged("serving")) for process in them) == 3)
        assert len(tokens) == 1
        nodes = nodes_of(url, capsys)
        assert len(nodes["nodes"]) == 3
        assert {nodes["token"]} == tokens
        for node in nodes["nodes"]:
            with GroupAdmin(
                node["address"], credentials=Credentials(token=nodes["token"])
            ) as admin:
                assert admin.list_groups() == []
            with GroupAdmin(node["address"], credentials=Credentials()) as admin:
                with pytest.raises(grpc.RpcError, match="UNAUTHENTICATED"):
                    admin.list_groups()
    assert len(rows(url, "SELECT 1 FROM reservation")) == 3


def test_the_serving_worker_is_killed_and_the_other_one_goes_on(url):
    with program(url) as first:
        takes(first, PARTITIONS)
        with program(url) as second:
            moved = {second.until("took")[1] for _ in range(2)}
            second.until_logged("serving")
            first.send(signal.SIGKILL)
            begins = takes(second, PARTITIONS - moved)
            assert all(position > 0 for position in begins.values())
            second.send(signal.SIGTERM)
            assert second.end() == 0


def test_a_node_that_was_killed_with_its_process_keeps_no_place(url):
    with program(url, STAND.replace("(url)", "(url, nodes=1)"), session=True) as first:
        address = first.until("found")[1]
        os.killpg(first.pid, signal.SIGKILL)
        wait_until(lambda: not listens(address))
    with embedded(url, nodes=1) as nodes:
        nodes.find_node(0)


def test_a_process_that_runs_none_waits_for_one(url):
    with pytest.raises(NoNode, match=r"postgresql://127.0.0.1:\d+/\S+\?cluster=c\d+ for 0.5 s"):
        embedded(url, serve=False, timeout_s=0.5).open()
    with program(url, STAND) as first:
        first.until("found")
        with embedded(url, serve=False) as nodes:
            with Health(str(nodes), credentials=Credentials(nodes=nodes)) as health:
                assert set(health.statuses(60).values()) == {SERVING}


def test_the_token_is_told_anew_to_a_store_that_went_back(url, capsys):
    with program(url, STAND) as process:
        token = process.until("found")[2]
        rows(url, "DELETE FROM reservation RETURNING 1")
        assert main(["store", "restored", url]) == 0
        process.until_logged("store_went_back")
        wait_until(lambda: rows(url, "SELECT token FROM reservation") == [(token,)])
        wait_until(lambda: nodes_of(url, capsys)["nodes"])
        assert nodes_of(url, capsys)["token"] == token


def test_nodes_on_the_loopback_of_another_machine_are_not_reached(url, monkeypatch):
    monkeypatch.setattr("coordinator.client.embedding.neighbours.FRESH_S", 0)
    with program(url, STAND) as first:
        first.until("found")
        rows(url, "UPDATE reservation SET machine = 'elsewhere' RETURNING 1")
        with pytest.raises(NotReachable, match="loopback of another machine: say embedded"):
            embedded(url).open()


def test_a_database_that_cannot_be_used_is_said_without_its_password(url):
    wrong = url.replace("://postgres@", "://nobody:s3cret@")
    with pytest.raises(CannotEmbed) as refused:
        embedded(wrong).open()
    assert "nobody" in str(refused.value).partition("cannot be found")[2]
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("postgresql://h/db", "postgresql://h/db"),
        ("postgres://me:a%40b@h:5,i:6/db?sslmode=require", "postgres://h:5,i:6/db"),
        ("postgresql://me:a/b:c@h/db?cluster=jobs", "postgresql://h/db?cluster=jobs"),
        ("postgresql://me:a?b@h/db", "postgresql://…"),
        ("postgresql://h/db?password=a@b", "postgresql://…"),
        ("postgresql:///?service=jobs&password=s3cret", "postgresql:///"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url, text):
    assert shown(url) == text
