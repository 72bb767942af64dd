"""Workers with the URL of a folder and no server: who serves, who connects, and who takes over."""

from __future__ import annotations

import contextlib
import os
import signal

import grpc
import pytest

from coordinator.cli.main import main
from coordinator.client import (
    BlockingMember,
    CannotEmbed,
    Credentials,
    NoNode,
    NotReachable,
    embedded,
)
from coordinator.data_folder import Holder, is_held, last_holder
from coordinator.operator.admin import GroupAdmin
from coordinator.storage.folder import FolderLock
from coordinator.testing import CoordinatorServer
from tests.integration.embedded.programs import PARTITIONS, STAND, WORKER, program, takes
from tests.integration.waiting import wait_until


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "jobs"


@pytest.fixture
def url(folder):
    return f"sqlite:///{folder}"


def lives(pid: int) -> bool:
    with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"
    return False


def test_one_process_serves_two_work_and_the_second_takes_over_what_the_first_committed(
    folder, url
):
    with program(url) as first:
        takes(first, PARTITIONS)
        node = last_holder(folder)
        with program(url) as second:
            moved = second.until("took")
            assert second.logged("serving") == []
            first.send(signal.SIGKILL)
            wait_until(lambda: not lives(node.pid))
            begins = takes(second, PARTITIONS - {moved[1]})
            assert second.logged("serving"), "another node"
            assert last_holder(folder).pid != node.pid
            assert all(position > 0 for position in begins.values()), (
                f"commits were kept: {begins} {first.heard}"
            )
            second.send(signal.SIGTERM)
            assert second.end() == 0
    assert not is_held(folder)


def test_signals_to_the_whole_process_group_leave_the_node_to_the_last_commits(folder, url):
    with program(url, session=True) as process:
        takes(process, PARTITIONS)
        os.killpg(process.pid, signal.SIGINT)
        gave = dict(process.until("gave")[1:] for _ in PARTITIONS)
        process.until("ended")
        assert process.end() == 0
        assert process.logged("stopped")
        assert not is_held(folder)
    with program(url) as again:
        assert takes(again, PARTITIONS) == gave


FORKING = """
worker_thread = None

def begin(nodes):
    child = os.fork()
    if not child:
        try:
            nodes.find_node(0)
        except RuntimeError as error:
            tell("refused", str(error))
        time.sleep(1000)
    tell("forked", child)

with embedded(url) as nodes:
    begin(nodes)
    time.sleep(1000)
"""


def test_a_killed_process_leaves_no_node_though_its_forks_hold_the_pipe_open(folder, url):
    with program(url, FORKING, session=True) as process:
        assert "forked child" in process.until("refused")[1]
        holder = last_holder(folder)
        process.send(signal.SIGKILL)
        wait_until(lambda: not lives(holder.pid))
        assert not is_held(folder)


def test_of_many_processes_started_at_once_one_serves(folder, url):
    with contextlib.ExitStack() as stack:
        them = [stack.enter_context(program(url, STAND)) for _ in range(8)]
        found = {tuple(process.until("found")) for process in them}
        assert len(found) == 1
        assert sum(bool(process.logged("loading")) for process in them) == 1


def test_a_node_that_dies_under_an_idle_process_is_run_by_whoever_needs_it(folder, url):
    with program(url, STAND) as first:
        first.until("found")
        node = last_holder(folder)
        os.kill(node.pid, signal.SIGKILL)
        wait_until(lambda: not is_held(folder))
        with embedded(url) as nodes:
            nodes.find_node(0)
            assert last_holder(folder).pid != node.pid


def test_two_workers_of_a_process_share_its_node_which_ends_with_the_last(folder, url):
    with embedded(url) as first:
        with embedded(url) as second:
            assert first.find_node(0) == second.find_node(0)
        assert is_held(folder)
        with pytest.raises(ValueError, match=r"has embedded sqlite:.* already, otherwise"):
            embedded(url, group_max_size=3).open()
        with BlockingMember(first, "g", {"t": 1}) as member:
            assert member.poll(timeout=60)
    assert not is_held(folder)
    with pytest.raises(RuntimeError, match="is not open: use it in `with embedded"):
        first.find_node(0)


def test_clients_without_the_token_are_refused_and_the_command_reads_it(folder, url, capsys):
    with embedded(url) as nodes:
        address, token, _ = nodes.find_node(0)
        with GroupAdmin(address, credentials=Credentials(token=token)) as admin:
            assert admin.list_groups() == []
        for wrong in ("", "cgc_wrong"):
            with GroupAdmin(address, credentials=Credentials(token=wrong)) as admin:
                with pytest.raises(grpc.RpcError) as refused:
                    admin.list_groups()
                assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert (folder / "lock").stat().st_mode & 0o777 == 0o600
        assert main(["groups", "list", "--bootstrap", url]) == 0
    assert main(["groups", "list", "--bootstrap", url]) == 1
    assert "no node has served sqlite:///" in capsys.readouterr().err


def test_a_server_on_the_same_url_takes_the_place_of_embedded_nodes(folder, url):
    with CoordinatorServer(store=url) as server, embedded(url) as nodes:
        assert nodes.find_node(0)[:2] == (server.address, "")
        with GroupAdmin(str(nodes), credentials=Credentials(nodes=nodes)) as admin:
            assert admin.list_groups() == []
    with embedded(url, serve="auto") as nodes:
        assert nodes.find_node(0).token


def test_what_cannot_be_embedded_is_said_in_a_sentence(tmp_path, folder, url):
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotEmbed, match=r"file/jobs cannot be used: .*Not a directory"):
        embedded(f"sqlite:///{tmp_path}/file/jobs").open()
    with pytest.raises(CannotEmbed, match="there is no flag --group-max-sise"):
        embedded(url, group_max_sise=3).open()
    with pytest.raises(CannotEmbed, match="a token of its own, and no other callers"):
        embedded(url, auth_tokens_file=str(tmp_path / "tokens")).open()
    folder.mkdir(exist_ok=True)
    (folder / "coordinator.sqlite3").write_bytes(b"not a database" * 100)
    with pytest.raises(CannotEmbed, match="no node can serve sqlite:///"):
        embedded(url).open()
    with pytest.raises(NoNode, match=r"for 0\.1 s"):
        embedded(url, serve=False, timeout_s=0.1).open()


def test_the_node_of_another_machine_is_not_reached(folder, url):
    lock = FolderLock(folder)
    try:
        lock._holder = Holder(host="elsewhere")
        lock.announce("127.0.0.1:1", "")
        with pytest.raises(NotReachable, match=r"served by process .* on elsewhere .* one machine"):
            embedded(url).open()
    finally:
        lock.release()


def test_stopping_while_the_node_starts_ends_the_worker(url):
    text = WORKER.replace("worker.run()", "threading.Timer(0.2, worker.stop).start(); worker.run()")
    with program(url, text) as process:
        process.until("ended")
        assert process.end() == 0
