"""Standard output that is closed, or has another encoding, is no cause for a traceback."""

from __future__ import annotations

import io
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
        ["replay", "tests/unit/runtime/recordings/single_node.jsonl"],
        ["replay", "tests/unit/runtime/recordings/many_failures.jsonl", "-o", "json"],
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

    monkeypatch.setattr("coordinator.operator.health.Health", broken)
    assert main(["health"]) == 1
    assert "BrokenPipeError" in Path(capfd.readouterr().err.split()[-1]).read_text()


def test_a_closed_standard_output_is_no_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert main(["config"]) == 0


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", b"\\u2026"), ("utf-8", "…".encode())])
def test_help_is_printed_in_any_encoding(encoding, shown, monkeypatch):
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(buffer, encoding))
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    assert b"coordinator [--help] [--version] COMMAND " + shown in buffer.getvalue()
