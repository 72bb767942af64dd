"""A delayed operation completes exactly once, whoever comes first."""

from __future__ import annotations

import pytest

from timer import DelayedOperation, Timer


class Operation(DelayedOperation):
    def __init__(self):
        super().__init__()
        self.may_complete = False
        self.calls = []

    def try_complete(self):
        return self.force_complete() if self.may_complete else False

    def on_complete(self):
        self.calls.append(("complete", self.is_completed, self.is_pending))

    def on_expiration(self):
        self.calls.append("expiration")


COMPLETED = ("complete", True, False)


def test_force_complete_wins_exactly_once():
    operation = Operation()
    assert [operation.force_complete() for _ in range(3)] == [True, False, False]
    assert operation.calls == [COMPLETED]
    assert operation.is_completed


def test_completion_cancels_the_timer_before_on_complete():
    timer, operation = Timer(0), Operation()
    timer.add(operation, 10)
    assert operation.force_complete() is True
    assert len(timer) == 0
    assert timer.advance_to(10) == 0
    assert operation.calls == [COMPLETED]


def test_expiration_is_told_after_completion_and_only_by_the_timer():
    timer, operation = Timer(0), Operation()
    timer.add(operation, 10)
    timer.advance_to(10)
    assert operation.calls == [COMPLETED, "expiration"]


def test_a_completed_operation_that_is_armed_all_the_same_does_not_expire():
    timer, operation = Timer(0), Operation()
    operation.force_complete()
    timer.add(operation, 10)
    timer.advance_to(10)
    assert operation.calls == [COMPLETED]


def test_try_complete_completes_once_the_condition_is_true():
    operation = Operation()
    assert operation.try_complete() is False
    operation.may_complete = True
    assert operation.try_complete() is True
    assert operation.try_complete() is False
    assert operation.calls == [COMPLETED]


def test_on_complete_that_completes_again_gets_false():
    class Eager(Operation):
        def on_complete(self):
            super().on_complete()
            self.calls.append(self.force_complete())

    operation = Eager()
    assert operation.force_complete() is True
    assert operation.calls == [COMPLETED, False]


def test_an_operation_whose_deadline_has_moved_does_not_expire_early():
    timer, operation = Timer(0), Operation()
    timer.add(operation, 10)
    timer.rearm(operation, 25)
    timer.advance_to(24)
    assert operation.calls == []
    assert operation.is_pending
    timer.advance_to(25)
    assert operation.calls == [COMPLETED, "expiration"]


def test_expiration_does_nothing_unless_overridden():
    class Plain(DelayedOperation):
        def on_complete(self):
            pass

    operation = Plain()
    operation.run()
    assert operation.is_completed


@pytest.mark.parametrize("method", ["try_complete", "force_complete"])
def test_condition_and_completion_must_be_overridden(method):
    with pytest.raises(NotImplementedError):
        getattr(DelayedOperation(), method)()
