"""The run that the README's first picture shows can be played and drawn again."""

from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="pictures need the extra `demo`")

from tests.integration.clients import recorded_workers
from tests.integration.clients.recorded_workers import PARTITIONS, TITLE


def test_a_run_of_the_readmes_worker_shows_who_went_on(tmp_path: Path, monkeypatch) -> None:
    drawn = []
    draw = recorded_workers.draw
    monkeypatch.setattr(
        recorded_workers, "draw", lambda *notice: drawn.append(notice) or draw(*notice)
    )
    recorded_workers.main([str(tmp_path / "workers.svg"), "--pause", "0"])
    assert TITLE in (tmp_path / "workers.svg").read_text()
    ((_, _, histories, steps),) = drawn
    (history,) = histories.values()
    assert history.owners == ["worker 1", "worker 2", "worker 3"]
    taken = [span for span in history.idle_spans if span.strike is not None]
    assert len(taken) == PARTITIONS // 2
    assert {(span.former, span.owner) for span in taken} == {("worker 2", "worker 1")}
    assert all(span.length_s > 5 for span in taken), "nobody can go on before its lease ends"
    came = [stint for stint in history.stints if stint.owner == "worker 3"]
    assert len(came) == PARTITIONS // 2
    assert all(stint.begin_s > steps[-1][0] for stint in came)
