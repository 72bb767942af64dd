"""A log that is slow for good: nobody waits for it longer than is promised."""

from __future__ import annotations

from tests.shard.desk import Desk


def test_commits_that_keep_coming_do_not_keep_a_compare_and_set_waiting():
    desk = Desk()
    desk.commit(1)
    compared = desk.commit(500, expected=1)
    for offset in range(2, 12):
        desk.commit(offset)
        under_way, desk.append = desk.append, None
        desk.step(desk.stored(under_way))  # The next entry has another commit of the partition.
        desk.pass_time(500)
    assert desk.error(compared) == "NOT_COORDINATOR"
