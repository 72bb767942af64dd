"""Questions of hosts to a shard about groups of both kinds."""

from __future__ import annotations

from tests.kit.session_scenario import GROUP, g1


def test_a_session_group_has_no_static_members():
    scenario, _ = g1()
    assert scenario.shard.has_static_member("another", None) is None
    assert scenario.shard.has_static_member(GROUP, None) is False


def test_a_session_group_is_counted():
    scenario, _ = g1()
    stats = scenario.shard.stats()
    assert (stats.members, stats.parked_joins) == (1, 0)
    assert stats.groups == {"Stable": 1}
    [of_group] = scenario.shard.group_stats(lambda group_id: group_id == GROUP)
    assert of_group.members == 1
