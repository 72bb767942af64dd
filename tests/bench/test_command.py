"""The command line of the benchmarks."""

from __future__ import annotations

import pytest

from tests.bench import __main__ as command


def test_each_benchmark_that_is_named_runs_once(monkeypatch, capsys):
    ran = []
    for name in command.BENCHMARKS:
        run = (name, lambda _, name=name: ran.append(name) or {"answer": 42})
        monkeypatch.setitem(command.BENCHMARKS, name, run)
    assert command.main(["purgatory", "timer", "timer"]) == 0
    assert ran == ["timer", "purgatory"]
    assert capsys.readouterr().out.count("42") == 2


@pytest.mark.parametrize("name", ["cluster", "compare"])
def test_what_cannot_be_measured_is_said(name, capsys):
    assert command.main([name]) == 1
    assert capsys.readouterr().err.startswith(f"bench: {name} needs --")
