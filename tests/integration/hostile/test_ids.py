"""Ids that mean harm, in every command, page and file that shows ids.

Commands are found by walking the parser: a new one fails here until it is said how it is called.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shutil
import subprocess
import sys
import threading
import urllib.request
from importlib import resources
from pathlib import Path
from urllib.parse import quote
from xml.etree import ElementTree as ET

import grpc
import pytest
import yaml

from coordinator.assignors import TopicPartition
from coordinator.cli.main import main, parser_for
from coordinator.client import BlockingMember
from coordinator.operator.admin import GroupAdmin
from coordinator.printable import printable
from coordinator.v1 import group_pb2 as pb
from coordinator.v1 import group_pb2_grpc
from tests.kit import requests
from tests.kit.patience import HANG_S
from tests.kit.serving import Process

TERMINAL = "\x1b]0;owned\x07\x1b[2J\nroot# \r\t\x01\x9b31m\x7f"
HARM = TERMINAL + "\u202e\u200b\u2028\ufeff[red]x[/]<i>&\"'😀\ufffe"
GROUP, CLIENT, TOPIC, REASON, INSTANCE, PROTOCOL = (
    f"{name}{HARM}" for name in ("group", "client", "topic", "reason", "instance", "protocol")
)
FLAGS = ("--console-listen", "127.0.0.1:0", "--group-initial-rebalance-delay-ms", "0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("hostile")


@pytest.fixture(scope="module")
def server(folder):
    more = ("--data-dir", str(folder / "data"), "--record-dir", str(folder / "recordings"))
    with Process(*FLAGS, *more, "--shards", "1") as server:
        fill(server)
        yield server


def fill(server: Process) -> None:
    """A group whose every name means harm, with offsets, a member that left, and one refused."""
    with grpc.insecure_channel(server.address) as channel:
        stub = group_pb2_grpc.GroupCoordinatorStub(channel)

        def join(protocol: str) -> pb.JoinGroupResponse:
            return stub.JoinGroup(
                requests.join(
                    GROUP,
                    session_timeout_ms=1_000_000,
                    group_instance_id=INSTANCE,
                    client_id=CLIENT,
                    protocols=[{"name": protocol, "metadata": b""}],
                    reason=REASON,
                )
            )

        mine = join(PROTOCOL)
        me = {"group_id": GROUP, "member_id": mine.member_id, "generation_id": mine.generation_id}
        stub.SyncGroup(pb.SyncGroupRequest(**me, group_instance_id=INSTANCE))
        other = requests.join(
            GROUP,
            session_timeout_ms=1_000_000,
            client_id=f"other{CLIENT}",
            protocols=[{"name": f"other{PROTOCOL}"}],
        )
        stub.JoinGroup(other)  # Refused: it can nothing that the others can.
        partition = {"partition_index": 0, "committed_offset": 7}
        topics = [{"name": TOPIC, "partitions": [partition]}]
        stub.OffsetCommit(pb.OffsetCommitRequest(**me, group_instance_id=INSTANCE, topics=topics))


def leaves(parser: argparse.ArgumentParser, *words: str):
    """Every command that can be run, as words, with its parser."""
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not below:
        yield " ".join(words), parser
    for action in below:
        for name, inner in action.choices.items():
            yield from leaves(inner, *words, name)


COMMANDS = dict(leaves(parser_for(None)))
WORDS = {
    "group": [GROUP],
    "generation": [],
    "shard": ["0"],
    "node": ["0"],
    "principal": [HARM],
    "action": [],
    "name": [HARM],
    "shell": ["bash"],
    "topic": [TOPIC],
    "partitions": ["3"],
    "member": [HARM],
    "settings": ["mode=warm"],
    "store": [f"postgresql://127.0.0.1:1/{HARM}"],
}
"""Values of positional arguments, by their names."""
FLAGGED = {
    "groups reset-offsets": ["--to-offset", "3"],
    "groups delete-offsets": ["--topic", TOPIC],
    "groups remove-member": ["--instance-id", f"no{INSTANCE}"],
    "timeline": ["--last", "9"],
    "explain": ["--last", "9"],
    "groups members": ["--verbose"],
}


def line_of(name: str, parser: argparse.ArgumentParser, server: Process, folder: Path) -> list[str]:
    special = {
        "serve": ["--listen", HARM],
        "config": ["check", "--listen", HARM],
        "replay": [str(next((folder / "recordings").iterdir()))],
        "log dump": [str(folder / "data")],
        "log verify": [str(folder / "data")],
        "log backup": [str(folder / "data"), str(folder / "copy")],
        "token new": [HARM, "--file", str(folder / "token")],
    }
    given = special.get(name)
    if given is None:
        positional = [a for a in parser._actions if not a.option_strings]
        given = [word for action in positional for word in WORDS[action.dest]]
        given += FLAGGED.get(name, [])
    if any("--bootstrap" in action.option_strings for action in parser._actions):
        given += ["--bootstrap", server.address]
    return [*name.split(), *given]


def run(line: list[str]) -> str:
    """All that a command says."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        with contextlib.suppress(SystemExit):
            main(line)
    return out.getvalue()


def assert_harmless(said: str) -> None:
    assert [char for char in said if not (char.isprintable() or char == "\n")] == []
    assert "\nroot" not in said


@pytest.mark.parametrize("name", [n for n in COMMANDS if n.split()[0] != "watch"])
def test_no_command_prints_what_acts(name, server, folder):
    line = line_of(name, COMMANDS[name], server, folder)
    assert_harmless(run(line))
    formats = [a for a in COMMANDS[name]._actions if "--output" in a.option_strings]
    for form in formats[0].choices if formats else ():
        said = run([*line, "-o", form])
        assert_harmless(said)
        assert "Traceback" not in said


def test_whoever_watches_is_safe(server):
    command = [sys.executable, "-m", "coordinator", "watch", "--bootstrap", server.address]
    messages: list[str] = []
    enough = threading.Event()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8") as watching:

        def read() -> None:
            for line in watching.stdout:
                messages.append(line)
                if "because" in line:
                    enough.set()

        reader = threading.Thread(target=read)
        reader.start()
        while not enough.is_set():  # Watching begins a moment after it was asked for.
            with BlockingMember(
                server.address, f"new{GROUP}", {TOPIC: 1}, client_id=CLIENT
            ) as member:
                while not member.assignment:
                    member.poll(timeout=0.1)
        watching.kill()
        reader.join()
    assert_harmless("".join(messages))
    assert "\\x1b" in "".join(messages)


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_programs_get_the_ids_themselves(server, form, read):
    (row,) = read(run(["groups", "members", GROUP, "--bootstrap", server.address, "-o", form]))
    assert (row["group"], row["client_id"]) == (GROUP, CLIENT)
    assert row["group_instance_id"] == INSTANCE
    (row,) = read(run(["groups", "offsets", GROUP, "--bootstrap", server.address, "-o", form]))
    assert row["topic"] == TOPIC


@pytest.mark.parametrize("name", ["picture.svg", "picture.png"])
def test_pictures_are_whole(server, tmp_path, name):
    path = tmp_path / name
    assert_harmless(run(["timeline", GROUP, "--file", str(path), "--bootstrap", server.address]))
    if path.suffix == ".svg":
        assert_is_picture(path.read_text())
    else:
        assert path.read_bytes().startswith(b"\x89PNG")


def assert_is_picture(svg: str) -> None:
    root = ET.fromstring(svg)
    texts = "".join(root.itertext()) + root.get("aria-label")
    assert "\\x1b" in texts
    assert_harmless(texts)
    assert not root.findall(".//i")


def test_the_console_hands_ids_on_in_json_and_draws_them(server):
    def asked(path: str) -> bytes:
        with urllib.request.urlopen(f"{server.console}api/{path}", timeout=HANG_S) as answer:
            return answer.read()

    group = quote(GROUP, safe="")
    lines = asked(f"group?group={group}&members=1")
    assert lines.isascii()
    assert json.loads(lines)["members"]["rows"][0]["client_id"] == CLIENT
    assert GROUP in [g["group_id"] for g in json.loads(asked("groups"))["groups"]]
    rebalances = json.loads(asked(f"rebalances?group={group}"))
    for sentence in [*rebalances["rebalances"][0]["explanation"], *rebalances["refused"]]:
        assert_harmless(sentence)
    assert_is_picture(asked(f"timeline.svg?group={group}&generation=1").decode())


def test_what_is_refused_is_told_without_harm(server):
    from urllib.error import HTTPError

    with pytest.raises(HTTPError) as caught:
        urllib.request.urlopen(
            f"{server.console}api/group?group=nobody{quote(HARM)}", timeout=HANG_S
        )
    with caught.value as answer:
        assert_harmless(answer.read().decode())


def test_the_log_is_json_of_ascii_and_readable_on_a_terminal(server, monkeypatch):
    assert any(GROUP in str(line.values()) or line.get("group") == GROUP for line in server.lines)
    assert server.other == ""


def test_offsets_of_hostile_topics_are_found(server):
    with GroupAdmin(server.address) as admin:
        assert admin.offsets(GROUP) == {TopicPartition(TOPIC, 0): 7}


NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="needs Node.js, which runs the page's own function")
def test_the_page_shows_ids_as_commands_do():
    page = (resources.files("coordinator.console") / "page" / "text.js").read_text()
    function = page[page.index("const UNSEEN") : page.index("/** Name of")].replace("export ", "")
    texts = [HARM, *HARM, "plain é 日本", "\xa0\u3000\u3164", "\ud800", "\U000e0041\U0010ffff"]
    program = f"{function}\nconsole.log(JSON.stringify(JSON.parse(process.argv[1]).map(printable)))"
    command = [NODE, "-e", program, json.dumps(texts)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [printable(text) for text in texts]
