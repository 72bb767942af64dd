"""Commands whose reader closes the pipe, as `head` does, end without a traceback."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from coordinator.cli.main import main


def status_with_closed_stdout(monkeypatch, *arguments: str) -> int:
    """The exit status of a command whose standard output is a pipe that nobody reads."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open(write_end, "w") as stdout, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stdout)
        return main(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["config"],
        ["config", "check"],
        ["--help"],
        ["groups", "reset-offsets", "--help"],
        ["replay", "tests/runtime/recordings/single_node.jsonl"],
        ["replay", "tests/runtime/recordings/many_failures.jsonl", "-o", "json"],
    ],
    ids=" ".join,
)
def test_a_closed_pipe_is_no_error(arguments, request, monkeypatch):
    monkeypatch.chdir(request.config.rootpath)
    assert status_with_closed_stdout(monkeypatch, *arguments) == 0


def test_the_exit_status_outlives_a_closed_pipe(monkeypatch, tmp_path):
    assert status_with_closed_stdout(monkeypatch, "log", "verify", str(tmp_path)) == 1


def test_another_broken_pipe_is_not_hidden(monkeypatch, capfd):
    def broken(*arguments, **options):
        raise BrokenPipeError

    monkeypatch.setattr("coordinator.client.health.Health", broken)
    assert main(["health"]) == 1
    assert "BrokenPipeError" in Path(capfd.readouterr().err.split()[-1]).read_text()
