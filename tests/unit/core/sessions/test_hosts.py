"""Members are counted by the hosts that they come from, whatever the kind of their group."""

from __future__ import annotations

from tests.kit.session_scenario import SessionScenario


def hosts(scenario: SessionScenario) -> dict[str, int]:
    return dict(scenario.shard.machine.members_by_host)


def test_session_members_count_once_for_their_host_as_long_as_they_are_there():
    scenario = SessionScenario()
    a = scenario.member("w-a", {"t": 4}).attach(client_host="/h")
    b = scenario.member("w-b", {"t": 4}).attach(client_host="/h")
    a.attach(client_host="/h", topics=(("t", 8),))
    assert hosts(scenario) == {"/h": 2}
    scenario.restart()
    assert hosts(scenario) == {"/h": 2}
    b.attach(client_host="/h")
    b.leave("now")
    assert hosts(scenario) == {"/h": 1}
    scenario.to(60_000)
    assert hosts(scenario) == {}
