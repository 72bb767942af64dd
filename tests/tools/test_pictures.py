"""The recorded runs behind the pages' pictures show what the pages say of them."""

from xml.etree import ElementTree as ET

import pytest

from flights.history import SIGKILL, SIGSTOP, History, load
from tests.kit.documents import ROOT
from tests.tools.pictures import DRAWN, PARTITIONS, RECORDED, RECORDED_WORKERS, terminal


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.name)
def test_a_picture_is_drawn(path):
    assert ET.fromstring(DRAWN[path]()).tag == "{http://www.w3.org/2000/svg}svg"


def test_the_recorded_run_of_the_demo_shows_a_kill_a_zombie_and_who_went_on():
    recorded = load(RECORDED)
    for kill in recorded.kills:
        rests = recorded.rests(kill)
        assert rests
        assert all(rest.taker is not None for rest in rests)
        assert kill.expired_s is not None
        assert all(rest.end_s > kill.expired_s for rest in rests), "nobody can go on before"
    killed, stopped = recorded.kills
    assert (killed.signal, stopped.signal) == (SIGKILL, SIGSTOP)
    assert {refusal.owner for refusal in recorded.refusals} == {stopped.owner}
    assert all(refusal.at_s > stopped.woken_s > stopped.expired_s for refusal in recorded.refusals)
    assert len(recorded.moments) == 6


def check_workers(recorded: History) -> None:
    """Check that two workers share, one is killed, the other takes over, and a third one comes."""
    assert recorded.owners == ("worker 1", "worker 2", "worker 3")
    (kill,) = recorded.kills
    rests = recorded.rests(kill)
    assert len(rests) == PARTITIONS // 2
    assert {(rest.owner, rest.taker) for rest in rests} == {("worker 2", "worker 1")}
    assert kill.expired_s is not None
    assert all(rest.end_s > kill.expired_s for rest in rests), "nobody can go on before"
    (moment,) = recorded.moments
    came = [stint for stint in recorded.stints if stint.owner == "worker 3"]
    assert len(came) == PARTITIONS // 2
    assert all(stint.begin_s > moment.at_s > kill.at_s for stint in came)


def test_the_recorded_run_of_the_readmes_worker_shows_who_went_on():
    check_workers(load(RECORDED_WORKERS))


@pytest.mark.parametrize("path", DRAWN, ids=lambda path: path.name)
def test_readers_see_the_pictures_on_the_first_page(path):
    assert f"]({path.relative_to(ROOT)})" in (ROOT / "README.md").read_text()


def test_a_terminal_wraps_lines_and_escapes_text():
    root = ET.fromstring(terminal("say <x>", ["a & b", "word " * 40]))
    lines = [it.text for it in root.iter("{http://www.w3.org/2000/svg}text")]
    assert lines[:2] == ["$ say <x>", "a & b"]
    assert len(lines) == 2 + 3
