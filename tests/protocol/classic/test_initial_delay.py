"""Scenarios 33-43: the initial rebalance delay (KIP-134)."""

from tests.kit.classic_scenario import ClassicScenario, code


def done(*calls) -> list[bool]:
    return [call.done for call in calls]


def test_033_a_lone_member_waits_for_the_delay():
    s = ClassicScenario()
    a = s.join()
    s.until(49)
    assert not a.done
    s.until(50)
    assert (code(a.response), a.response.generation_id) == ("NONE", 1)


def test_034_an_arrival_extends_the_delay():
    s = ClassicScenario()
    a = s.join(rt=150)
    s.until(49)
    b = s.join(rt=150)
    for at in (50, 99):
        s.until(at)
        assert done(a, b) == [False, False]
    s.until(100)
    assert a.response.generation_id == b.response.generation_id == 1


def test_035_the_delay_ends_at_the_rebalance_timeout_of_the_first_member():
    s = ClassicScenario()
    a, b = s.join(rt=100), s.join(rt=100)
    s.until(51)
    c = s.join(rt=100)
    s.until(99)
    assert done(a, b, c) == [False] * 3
    s.until(100)
    assert {call.response.generation_id for call in (a, b, c)} == {1}


def test_036_arrivals_in_every_window_end_exactly_at_the_cap():
    s = ClassicScenario(group_initial_rebalance_delay_ms=3000, group_max_size=100)
    calls = [s.join(rt=10_000, srt=30_000)]
    for at in range(1000, 10_000, 1000):
        s.until(at)
        calls.append(s.join(rt=10_000, srt=30_000))
    s.until(9_999)
    assert not any(done(*calls))
    s.until(10_000)
    assert all(done(*calls))


def test_037_a_delay_longer_than_the_rebalance_timeout_is_kept():
    s = ClassicScenario(group_initial_rebalance_delay_ms=3000)
    a, b = s.join(rt=1000), s.join(rt=1000)
    s.until(2999)
    assert done(a, b) == [False, False]
    s.until(3000)
    assert done(a, b) == [True, True]


def test_038_a_rejoin_does_not_extend_the_delay():
    s = ClassicScenario()
    first = s.join()
    a = s.members()[0]
    s.until(20)
    second = s.join(a)
    assert code(first.response) == "REBALANCE_IN_PROGRESS"
    s.until(50)
    assert code(second.response) == "NONE"


def test_039_an_initial_phase_never_ends_early():
    s = ClassicScenario()
    a, b = s.join(), s.join()
    s.until(10)
    assert s.leave_codes(s.members()[1]) == ["NONE"]
    assert code(b.response) == "UNKNOWN_MEMBER_ID"
    s.until(50)
    assert not a.done  # B's coming extended the delay, and its going does not end it.
    s.until(100)
    assert a.response.generation_id == 1


def test_040_a_group_that_became_empty_waits_anew():
    s = ClassicScenario()
    a = s.f1()
    s.leave(a)
    t0 = s.c.now_ms
    first = s.join()
    s.until(t0 + 40)
    second = s.join()
    s.until(t0 + 50)
    assert done(first, second) == [False, False]
    s.until(t0 + 100)
    assert first.response.generation_id == second.response.generation_id == 3


def test_041_a_later_longer_rebalance_timeout_does_not_move_the_cap():
    s = ClassicScenario()
    calls = [s.join(rt=100)]
    for at in (10, 60):
        s.until(at)
        calls.append(s.join(rt=10_000))
    s.until(99)
    assert not any(done(*calls))
    s.until(100)
    assert all(done(*calls))


def test_042_without_a_delay_the_phase_ends_on_the_next_tick():
    s = ClassicScenario(group_initial_rebalance_delay_ms=0)
    a = s.join()
    s.advance(1)
    assert a.response.generation_id == 1


def test_043_a_pending_id_does_not_hold_an_initial_phase_open():
    s = ClassicScenario()
    a = s.join()
    p = s.join(two_phase=True).response.member_id
    s.until(50)
    assert a.response.generation_id == 1
    s.sync(a.response.member_id, 1)
    assert not s.join(p).done
    assert s.state == "PreparingRebalance"
