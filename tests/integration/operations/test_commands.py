"""Every command against one node: what programs read, exit statuses, and every wrong use."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from coordinator.cli.main import main, parser_for
from coordinator.client import BlockingMember
from coordinator.observe.rows import described
from tests.kit.patience import HANG_S
from tests.kit.serving import Process, free_port
from tests.unit.cli.test_parser import leaves

ROOT = Path(__file__).parents[3]
LEAVES = {" ".join(words): parser for words, parser in leaves(parser_for(None))}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("commands")


@pytest.fixture(scope="module")
def server(folder):
    flags = ("--data-dir", str(folder / "data"), "--record-dir", str(folder / "recordings"))
    delay = ("--group-initial-rebalance-delay-ms", "0")
    with Process(*flags, *delay, "--shards", "2") as server:
        for group in ("done", "gone"):
            with BlockingMember(server.address, group, {"t": 2}) as member:
                join(member)
                member.commit(dict.fromkeys(member.assignment, 7))
        with BlockingMember(server.address, "live", {"t": 1}, client_id="c") as member:
            join(member)
            yield server


def join(member: BlockingMember) -> None:
    while not member.assignment:
        member.poll(timeout=0.1)


@pytest.fixture(autouse=True)
def environment(tmp_path, monkeypatch):
    """A folder of its own."""
    monkeypatch.chdir(tmp_path)


def run(capsys, line: str, server: Process, folder: Path) -> tuple[int, str, str]:
    """Status and output of a command line, in which {FOLDER} and {NODE} are replaced."""
    words = [
        word.format(FOLDER=folder, NODE=server.address, RECORDING=recording(folder))
        for word in line.split()
    ]
    try:
        status = main(words)
    except SystemExit as end:
        status = end.code
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return status, said.out, said.err


def recording(folder: Path) -> Path:
    return max((folder / "recordings").iterdir(), key=lambda path: path.stat().st_size)


# --- Reading ------------------------------------------------------------------------------------

LINES = [
    ("health", 0, lambda rows: [row["status"] for row in rows] == ["SERVING"]),
    ("cluster describe", 0, lambda rows: (rows[0]["leads"], rows[0]["state"]) == (2, "serving")),
    ("cluster describe --shards", 0, lambda rows: [row["shard"] for row in rows] == [0, 1]),
    ("topics set unread 6", 0, lambda rows: rows[0]["partitions"] == 6),
    ("topics list", 0, lambda rows: "unread" in {row["topic"] for row in rows}),
    ("topics set unread 0", 1, lambda rows: "from 1 to 10000" in rows[0]["error"]),
    ("topics set .. 3", 1, lambda rows: "1 to 249 letters" in rows[0]["error"]),
    ("topics delete nowhere", 1, lambda rows: "no topic has this name" in rows[0]["error"]),
    ("config", 0, lambda rows: {row["setting"]: row["value"] for row in rows}["shards"] == 16),
    ("config check", 0, lambda rows: rows == []),
    ("config check --insecure", 0, lambda rows: [row["level"] for row in rows] == ["warning"]),
    ("config check --shards x", 2, lambda rows: [row["level"] for row in rows] == ["error"]),
    ("log verify {FOLDER}/data", 0, lambda rows: all(row["ok"] for row in rows)),
    ("log backup {FOLDER}/data {FOLDER}/copy", 0, lambda rows: rows[0]["shards"] == 2),
    ("token new me --file {FOLDER}/token", 0, lambda rows: rows[0]["principal"] == "me"),
    ("groups list", 0, lambda rows: len(rows) == 3),
    ("groups state live", 0, lambda rows: len(rows) == 1),
    ("groups describe done", 0, lambda rows: len(rows) == 2),
    ("groups describe --all --summary", 0, lambda rows: len(rows) == 3),
    ("groups members live", 0, lambda rows: len(rows) == 1),
    ("groups offsets done", 0, lambda rows: len(rows) == 2),
    ("groups reset-offsets done --to-offset 3", 0, lambda rows: len(rows) == 2),
    ("groups delete-offsets done --topic t:1", 0, lambda rows: len(rows) == 1),
    ("groups delete-offsets live --topic t:0", 1, lambda rows: rows[0]["error"] is not None),
    ("groups remove-member live --member-id x", 1, lambda rows: rows[0]["error"] is not None),
    ("groups delete gone live", 1, lambda rows: rows[1]["error_code"] == "NON_EMPTY_GROUP"),
    ("explain live", 0, lambda rows: len(rows) == 1),
    ("timeline live", 0, lambda rows: len(rows) >= 1),
    ("who-blocks live", 0, lambda rows: rows == []),
    (
        f"replay {ROOT}/tests/unit/runtime/recordings/single_node.jsonl",
        0,
        lambda rows: len(rows) >= 1,
    ),
]
CONNECTS = ("health", "cluster", "groups", "topics", "explain", "timeline", "who-blocks")


@pytest.mark.parametrize(("line", "status", "is_right"), LINES, ids=[line for line, *_ in LINES])
def test_programs_read_what_is_documented(line, status, is_right, server, folder, capsys):
    at = f" --bootstrap {server.address}" if line.split()[0] in CONNECTS else ""
    code, out, _ = run(capsys, f"{line}{at} -o json", server, folder)
    rows = json.loads(out)
    assert code == status
    assert is_right(rows), rows
    kinds = kinds_of(line)
    for row in rows if kinds else ():
        assert any(conforms(row, kind) for kind in kinds), (row, kinds)
    if not changes(line):
        code, out, _ = run(capsys, f"{line}{at} -o yaml", server, folder)
        assert (code, len(yaml.safe_load(out))) == (status, len(rows))
        assert run(capsys, f"{line}{at}", server, folder)[0] == status


def changes(line: str) -> bool:
    return line.startswith(("log backup", "token", "groups delete", "replay"))


def kinds_of(line: str) -> tuple[type, ...]:
    words = line.split()
    name = next(name for name in (" ".join(words[:2]), words[0]) if name in LEAVES)
    return LEAVES[name].get_default("kinds") or ()


def conforms(row: dict, kind: type) -> bool:
    """True if a row has the keys that its kind declares, with values of their types."""
    declared = {column.key: column.type for column in described(kind) if "." not in column.key}
    assert all(re.fullmatch("[a-z][a-z0-9_]*", key) for key in declared)
    return list(row) == list(declared) and all(
        any(is_of(row[key], part) for part in spelled.split(" or "))
        for key, spelled in declared.items()
    )


def is_of(value: object, spelled: str) -> bool:
    if spelled.startswith("array of "):
        inner = spelled.removeprefix("array of ").removesuffix("s")
        return isinstance(value, list) and all(is_of(item, inner) for item in value)
    kinds = {
        "null": type(None),
        "string": str,
        "integer": int,
        "number": float,
        "boolean": bool,
        "object": dict,
    }
    return f"`{value}`" == spelled or type(value) is kinds.get(spelled)


def test_every_command_is_tried():
    tried = {
        next(name for name in LEAVES if f"{line} ".startswith(f"{name} ")) for line, *_ in LINES
    }
    elsewhere = {"serve", "completion", "watch", "log dump", "cluster elect", "cluster move"}
    elsewhere |= {
        "policy show",
        "policy set",
        "members evict",
    }  # By tests/unit/cli/test_session_groups.
    elsewhere |= {"store sql", "store restored"}  # By test_store_command.
    elsewhere |= {"store nodes"}  # By tests/integration/embedded/test_database.
    assert set(LEAVES) - tried - elsewhere - {"cluster drain"} == set()


def test_dump_prints_a_record_at_a_time(server, folder, capsys):
    status, out, _ = run(capsys, "log dump {FOLDER}/data --group live", server, folder)
    records = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert {record["group_id"] for record in records} == {"live"}
    status, out, _ = run(capsys, "log dump {FOLDER}/data --group live -o yaml", server, folder)
    assert (status, yaml.safe_load(out)) == (0, records)
    status, out, _ = run(capsys, "log dump {FOLDER}/data --group live -o table", server, folder)
    assert (status, len(out.splitlines())) == (0, len(records))


def test_watching_prints_a_document_each_time_and_ends_with_ctrl_c(server):
    command = [sys.executable, "-m", "coordinator", "cluster", "describe", "--watch", "0.1"]
    with subprocess.Popen(
        [*command, "-o", "json", "--bootstrap", server.address],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as watching:
        text, decoder = "", json.JSONDecoder()
        for _ in range(2):
            while True:
                line = watching.stdout.readline()
                text += line
                if line == "]\n":
                    break
            rows, _ = decoder.raw_decode(text)
            assert rows[0]["leads"] == 2
            text = ""
        watching.send_signal(signal.SIGINT)
        _, err = watching.communicate(timeout=HANG_S)
    assert (watching.returncode, err) == (0, "")


# --- Wrong uses ---------------------------------------------------------------------------------

REFUSED = [
    ("topics set unread x {AT}", 2, "'x' is no number of partitions"),
    ("cluster drain 9 {AT}", 1, "There is no node 9; the nodes are"),
    ("cluster move 7 1 {AT}", 1, "There is no shard 7; the shards are 0, 1."),
    ("cluster move 0 9 {AT}", 1, "There is no node 9"),
    ("cluster elect 5 {AT}", 1, "There is no shard 5; the shards are 0, 1."),
    ("cluster elect {AT}", 1, "this node has its store for itself"),
    ("cluster drain -3 {AT}", 1, "There is no node -3"),
    ("cluster describe --bootstrap nowhere", 2, "nowhere is no address: give HOST:PORT"),
    ("cluster describe --bootstrap http://{NODE}", 2, "is no address"),
    ("cluster describe --bootstrap nowhere.invalid:1", 1, "the name has no address"),
    ("cluster describe --bootstrap 127.0.0.1:{FREE}", 1, "nothing listens there"),
    ("cluster describe --bootstrap {PAGE}", 1, "no answer from"),
    ("cluster describe {AT} --tls-ca /nope", 1, "cannot read /nope: No such file"),
    ("cluster describe {AT} --tls-ca {FOLDER}", 1, "Is a directory"),
    ("cluster describe {AT} --tls", 1, "the node does not use TLS"),
    ("cluster describe {AT} --token-file /nope", 1, "cannot read /nope: No such file"),
    ("cluster describe {AT} --tls-cert {FOLDER}/a.pem", 1, "a certificate needs its key"),
    ("groups describe nope {AT}", 1, "nope"),
    ("groups describe {AT}", 2, "name one or more groups"),
    ("groups list --state foo {AT}", 2, "the states are Empty, PreparingRebalance"),
    ("groups reset-offsets live --to-offset 1 --execute {AT}", 1, "current state is Stable"),
    ("groups reset-offsets done --to-earliest {AT}", 1, "the start of the log of t-0 is unknown"),
    ("groups delete-offsets done --topic t:3-0 {AT}", 2, "runs backwards"),
    ("groups remove-member live {AT}", 2, "--member-id"),
    ("explain nope {AT}", 1, "nope"),
    ("explain live 99 {AT}", 1, "99"),
    ("timeline live --file /nope/x.svg {AT}", 1, "No such file"),
    ("replay nope", 1, "nope: No such file"),
    ("replay {FOLDER}", 1, "Is a directory"),
    ("replay {FOLDER}/data/coordinator.sqlite3", 1, "coordinator.sqlite3"),
    ("log verify nope", 1, "there is no nope/coordinator.sqlite3"),
    ("log verify {RECORDING}", 1, "there is no"),
    ("log dump nope", 1, "there is no nope/coordinator.sqlite3"),
    ("log dump {FOLDER}/data --shard 9", 1, "There is no shard 9; the shards are 0, 1."),
    ("log dump redis://x/y", 2, "store is 'redis://x/y'"),
    ("log dump etcd://127.0.0.1:{FREE}/x", 1, ""),
    ("log backup {FOLDER}/data {FOLDER}/data", 1, "already"),
    ("log backup {FOLDER}/data {RECORDING}", 1, "File exists"),
    ("log backup nope copy", 1, "there is no nope/coordinator.sqlite3"),
    ("token new me --file /nope/x", 1, "/nope/x: No such file"),
    ("token new me --file {RECORDING}", 1, "File exists"),
    ("token new a#b --file t", 1, "cannot be a principal"),
    ("token new me", 2, "--file"),
    ("config --config nope", 2, "nope: No such file"),
    ("config --config {FOLDER}", 2, "Is a directory"),
    ("config --config {FOLDER}/data/coordinator.sqlite3", 2, "coordinator.sqlite3"),
    ("config check --config nope", 2, "nope: No such file"),
    ("config --shards x", 2, "shards is 'x'; it takes a whole number"),
    ("serve --config nope", 2, "nope: No such file"),
    ("serve --shards 0", 2, "shards is 0; it may be 1 to 1024"),
    ("serve --tls-cert-file nope --tls-key-file nope", 2, "nope"),
    ("serve --listen nowhere", 2, "give HOST:PORT"),
]


@pytest.mark.parametrize(("line", "status", "words"), REFUSED, ids=[line for line, *_ in REFUSED])
def test_wrong_uses_are_answered_in_a_sentence(line, status, words, server, folder, capsys):
    line = line.replace("{AT}", f"--bootstrap {server.address}")
    line = line.replace("{FREE}", str(free_port())).replace("{PAGE}", server.metrics.split("/")[2])
    has_rows = not line.startswith(("serve", "timeline"))  # `--file` has `-o table` alone.
    for form in ("", " -o json") if has_rows else ("",):
        code, out, err = run(capsys, line + form, server, folder)
        assert (code, out) == (status, "")
        error = err.splitlines()
        assert error[0].startswith("coordinator: ")
        assert words in error[0]
        assert error[1:] == [] or error[1].startswith("Try `coordinator")
        assert re.search(r"Error|Exception|errno|<class|\b[A-Z]+_[A-Z_]+\b", error[0]) is None


def test_some_of_several_changes_that_fail_are_named_in_their_rows(server, folder, capsys):
    line = f"groups delete nope live --bootstrap {server.address} -o json"
    status, out, _ = run(capsys, line, server, folder)
    codes = {row["group"]: row["error_code"] for row in json.loads(out)}
    assert status == 1
    assert codes == {"nope": "GROUP_ID_NOT_FOUND", "live": "NON_EMPTY_GROUP"}
    assert all(row["error"] for row in json.loads(out))


@pytest.mark.parametrize("line", ["explain g\udcff", "groups describe g\udcff", "log dump g\udcff"])
def test_text_that_is_not_utf8_is_refused(line, server, folder, capsys):
    at = f" --bootstrap {server.address}" if line.split()[0] in CONNECTS else ""
    status, out, err = run(capsys, line + at, server, folder)
    assert (status > 0, out) == (True, "")
    assert err.startswith("coordinator: ")


def test_ctrl_c_while_a_call_waits_is_no_traceback():
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with subprocess.Popen(
            [sys.executable, "-m", "coordinator", "groups", "list", "--bootstrap", address],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        ) as waiting:
            connection, _ = silent.accept()
            waiting.send_signal(signal.SIGINT)
            _, err = waiting.communicate(timeout=HANG_S)
            connection.close()
    assert (waiting.returncode, err) == (130, "")
