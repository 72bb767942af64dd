"""The command line of the benchmarks: which of them run, and what they ask for."""

from __future__ import annotations

import pytest

from coordinator.cli import main as product
from tests.bench import __main__ as command
from tests.bench.figures import CannotMeasure


@pytest.fixture
def ran(monkeypatch) -> list[str]:
    """The names of the benchmarks that were run; each only says so."""
    names = []

    def recorder(name):
        return lambda options: names.append(name) or {"answer": 42}

    for name, benchmark in command.BENCHMARKS.items():
        noted = command.Benchmark(
            benchmark.summary, recorder(name), benchmark.needs, benchmark.is_of_all
        )
        monkeypatch.setitem(command.BENCHMARKS, name, noted)
    return names


def test_each_benchmark_that_is_named_runs_once(ran, capsys):
    assert command.main(["timer", "churn", "timer"]) == 0
    assert ran == ["timer", "churn"]
    assert capsys.readouterr().out.count("42") == 2


def test_all_leaves_out_what_needs_an_option_or_lasts_as_long_as_one_likes(ran):
    assert command.main(["all"]) == 0
    assert set(command.BENCHMARKS) - set(ran) == {
        "soak",
        "connections",
        "elections",
        "rolling",
        "sessions",
        "session-members",
        "session-plans",
        "churn",
        "cluster",
        "compare",
        "spark",
        "spark-reads",
        "outages",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cluster"], "cluster needs --store"),
        (["timer", "compare"], "compare needs --against"),
        (["purgatory", "--requests", "0"], "--requests: must be at least 1"),
        (["compare", "--against", ".", "--pairs", "2"], "--pairs: must be at least 3"),
        (["barrier", "--members", "0"], "--members: must be at least 1"),
        (["nothing"], "invalid choice: 'nothing'"),
        ([], "arguments are required: NAME"),
    ],
)
def test_a_wrong_command_line_runs_nothing(ran, capsys, arguments, message):
    with pytest.raises(SystemExit) as exit_:
        command.main(arguments)
    assert exit_.value.code == 2
    assert message in capsys.readouterr().err
    assert ran == []


def test_what_cannot_be_measured_is_said(ran, monkeypatch, capsys):
    def fails(options):
        raise CannotMeasure("no such thing")

    monkeypatch.setitem(command.BENCHMARKS, "spark", command.Benchmark("fails", fails))
    assert command.main(["spark"]) == 1
    assert capsys.readouterr().err == "bench: no such thing\n"


def test_the_product_has_no_benchmarks(capsys):
    with pytest.raises(SystemExit) as exit_:
        product.main(["bench"])
    assert exit_.value.code == 2
    assert "there is no command 'bench'" in capsys.readouterr().err
