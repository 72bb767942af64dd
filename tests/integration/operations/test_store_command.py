"""`coordinator store`, and what other commands say of a PostgreSQL store."""

from __future__ import annotations

import json
import sys
import urllib.request

import psycopg
import pytest

from coordinator.cli.main import main
from coordinator.storage.postgres_schema import prepare
from tests.campaigns.faults.stores import Postgres
from tests.integration.waiting import wait_until
from tests.kit.patience import HANG_S
from tests.kit.serving import Process, free_port

CLUSTER = "jobs"


def run(capsys, *words: str) -> tuple[int, str, str]:
    try:
        status = main(words)
    except SystemExit as end:
        status = end.code
    return status, *capsys.readouterr()


def made(capsys, postgres: Postgres, cluster: str) -> str:
    """URL of a store whose tables were made from what the command prints."""
    status, sql, _ = run(capsys, "store", "sql", "--cluster", cluster)
    assert status == 0
    with psycopg.connect(postgres.url("primary", cluster=""), autocommit=True) as connection:
        connection.execute(sql.encode())
    return postgres.url("primary", cluster=cluster)


def test_the_printed_sql_may_be_run_twice_and_names_the_role(capsys, postgres):
    made(capsys, postgres, CLUSTER)
    made(capsys, postgres, CLUSTER)
    sql = run(capsys, "store", "sql", "--cluster", CLUSTER, "--role", 'a"b')[1]
    assert 'TO "a""b";' in sql


def test_a_restored_store_begins_a_lineage(capsys, postgres):
    url = postgres.url("primary", cluster="restored")
    assert run(capsys, "log", "dump", url)[0] == 1, "nobody has made it"
    with psycopg.connect(postgres.url("primary", cluster=""), autocommit=True) as connection:
        connection.execute("SET search_path = restored")
        prepare(connection, "restored", 4)
    status, out, _ = run(capsys, "store", "restored", url, "-o", "json")
    assert status == 0
    (row,) = json.loads(out)
    assert (row["lineage"], row["raised"] >= 1 << 16) == (2, True)
    status, out, err = run(capsys, "store", "restored", url)
    assert "load their shards anew" in out + err
    assert " 3 " in out


def test_a_cluster_tells_that_its_store_has_lost_commits(capsys, postgres):
    url = postgres.url("primary", cluster="told")
    with Process("--store", url, "--node-id", "1") as node:
        cluster = ("cluster", "describe", "--bootstrap", node.address)
        assert "lineage" not in "".join(map(str, run(capsys, *cluster)))
        assert run(capsys, "store", "restored", url)[0] == 0
        wait_until(lambda: "has lineage 2: it has lost commits" in run(capsys, *cluster)[2])
        page = urllib.request.urlopen(node.metrics, timeout=HANG_S).read().decode()
        assert "coordinator_store_lineage 2.0" in page
        wait_until(lambda: any(line["event"] == "store_went_back" for line in node.lines))


def test_a_cluster_that_nobody_has_made_cannot_be_restored(capsys, postgres):
    url = postgres.url("primary", cluster="nowhere")
    status, out, err = run(capsys, "store", "restored", url)
    assert (status, out) == (1, "")
    assert err == "coordinator: there is no store of this name\n"


def test_without_psycopg_the_command_names_the_extra(capsys, monkeypatch):
    for name in [
        module for module in sys.modules if module.startswith("coordinator.storage.postgres")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    status, out, err = run(capsys, "store", "sql")
    assert (status, out) == (1, "")
    assert err.startswith("coordinator: PostgreSQL needs the extra: ")


@pytest.mark.parametrize("name", ["a b", "x" * 64])
def test_a_cluster_that_is_no_name_is_refused(capsys, name):
    status, out, err = run(capsys, "store", "sql", "--cluster", name)
    assert (status, out) == (2, "")
    assert "cluster names a schema" in err


@pytest.mark.parametrize("store", ["sqlite", "etcd://127.0.0.1:1/x", "nothing"])
def test_only_postgresql_has_a_lineage(capsys, store):
    status, out, err = run(capsys, "store", "restored", store)
    assert (status, out) == (2, "")
    assert err.startswith("coordinator: ")


def test_what_cannot_be_reached_is_refused_without_its_password(capsys):
    url = f"postgresql://u:secret@127.0.0.1:{free_port()}/db"
    for words in (["store", "restored", url], ["config", "check", "--store", url]):
        _, out, err = run(capsys, *words)
        assert "127.0.0.1" in out + err
        assert "secret" not in out + err
        assert "Traceback" not in err
    assert run(capsys, "store", "restored", url)[0] == 1


def test_config_names_the_replication_and_hides_the_password(capsys, postgres):
    url = postgres.url("primary", cluster=CLUSTER).replace("postgres@", "postgres:secret@", 1)
    status, out, _ = run(capsys, "config", "check", "--store", url)
    assert status == 0
    assert "no standby is connected" in out
    assert "secret" not in run(capsys, "config", "show", "--store", url)[1]
