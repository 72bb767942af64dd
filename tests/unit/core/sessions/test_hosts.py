"""Members are counted by the hosts that they come from, whatever the kind of their group."""

from __future__ import annotations

from tests.unit.core.sessions.kit import World


def hosts(world: World) -> dict[str, int]:
    return dict(world.shard.machine.members_by_host)


def test_session_members_count_once_for_their_host_as_long_as_they_are_there():
    world = World()
    a = world.member("w-a", {"t": 4}).attach(client_host="/h")
    b = world.member("w-b", {"t": 4}).attach(client_host="/h")
    a.attach(client_host="/h", topics=(("t", 8),))
    assert hosts(world) == {"/h": 2}
    world.restart()
    assert hosts(world) == {"/h": 2}
    b.attach(client_host="/h")
    b.leave("now")
    assert hosts(world) == {"/h": 1}
    world.to(60_000)
    assert hosts(world) == {}
