"""`coordinator bench`, as people call it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def bench(*arguments) -> str:
    answer = subprocess.run(
        [sys.executable, "-m", "coordinator", "bench", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_purgatory_measures_every_rival_in_both_settings_and_draws_them(tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need the extra `bench`")
    file, folder = tmp_path / "figures.json", tmp_path / "pictures"
    shown = bench(
        "purgatory", "--quick", "--requests", "1000", "--json", file, "--pictures", folder
    )
    found = json.loads(file.read_text())
    figures = found["purgatory"]
    assert found["machine"]["python"] in shown
    for setting in ("low", "high"):
        for rival in ("timing wheel", "heap", "asyncio", "sortedcontainers"):
            assert figures[f"{setting}: {rival}, most sustained, requests/s"] > 0
            assert figures[f"{setting}: {rival} at 100,000/s, CPU a request, us"] > 0
        assert "met" in figures[f"{setting}: timing wheel at 100,000/s, % of a core"]
    curves = found["pictures"]["purgatory"]["low time-out rate: sustained, thousand/s"]
    assert [asked for asked, _ in curves["timing wheel"]] == [25, 100]
    assert sorted(path.name for path in folder.iterdir()) == ["purgatory.png", "purgatory.svg"]
    assert "asked, thousand requests/s" in (folder / "purgatory.svg").read_text()


def test_timer_prints_a_table_of_goals():
    shown = bench("timer", "--quick")
    assert "add + cancel, in empty calls" in shown
    assert "13 at most" in shown


def test_messages_are_measured_one_by_one(tmp_path):
    file = tmp_path / "figures.json"
    bench("messages", "--quick", "--json", str(file))
    found = json.loads(file.read_text())["messages"]
    turns = [figure for what, figure in found.items() if what.endswith("longest turn, ms")]
    assert len(turns) > 20
    assert all(turn["value"] > 0 and turn["at_most"] == 100 for turn in turns)
