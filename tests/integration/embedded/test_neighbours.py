"""What the processes of one user share about a store: of two, one asks and one starts."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import pytest

from coordinator.client.embedding.neighbours import FRESH_S, Neighbours

OTHER = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from coordinator.client.embedding.neighbours import Neighbours
it = Neighbours("postgresql://x")
print(it.take_start(), it.ask(lambda: "asked"), flush=True)
sys.stdin.read()
"""


def in_another_process(folder) -> subprocess.Popen:
    words = [sys.executable, "-c", OTHER, str(folder)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def told_by(process: subprocess.Popen) -> str:
    with process:
        return process.communicate()[0].strip()


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def never() -> str:
    raise AssertionError("the store was asked")


def test_a_turn_is_one_process_s_until_it_gives_it_up_or_ends(here):
    mine = Neighbours("postgresql://x")
    assert mine.take_start()
    assert told_by(in_another_process(here)) == "False asked"
    mine.give_start()
    with in_another_process(here) as other:
        assert other.stdout.readline().strip() == "True asked"
        assert not mine.take_start()
        other.kill()
        other.wait()
        assert mine.take_start()


def test_one_process_asks_at_a_time(here):
    mine = Neighbours("postgresql://x")
    answer = mine.ask(lambda: told_by(in_another_process(here)))
    assert answer == "True None"


def test_an_answer_is_everybody_s_while_it_is_fresh(here):
    mine = Neighbours("postgresql://x")
    assert mine.ask(lambda: "told") == "told"
    assert told_by(in_another_process(here)) == "True told"
    assert Neighbours("postgresql://y").ask(lambda: "of another store") == "of another store"
    assert mine.ask(never) == "told"
    (answer,) = [
        path for path in here.rglob("*") if path.is_file() and b"told" in path.read_bytes()
    ]
    assert answer.stat().st_mode & 0o777 == 0o600
    os.utime(answer, (0, answer.stat().st_mtime - 2 * FRESH_S))
    assert mine.ask(lambda: "asked again") == "asked again"


def test_a_folder_that_is_not_this_user_s_alone_is_not_used(here):
    (here / f"coordinator-{os.getuid()}").mkdir(mode=0o755)
    for text in ("one", "two"):
        assert Neighbours("postgresql://x").ask(lambda text=text: text) == text
