"""A pytest plugin: the fixtures `virtual_group`, `coordinator_server` and `virtual_coordinator`.

Ask for it on the command line, `-p coordinator.testing.plugin`, or in a conftest with
`pytest_plugins = ["coordinator.testing.plugin"]`. It needs pytest 8 or newer and no other plugin,
and imports nothing of the coordinator until a test asks for a fixture.

    async def test_the_other_worker_takes_over(virtual_group):
        group = virtual_group()
        first, second = group.start(make_worker), group.start(make_worker)
        await group.advance(10)
        first.kill()
        await group.advance(50)
        assert set(group.owners().values()) == {second.name}

A test that asks for `virtual_group` is `async def`, and runs on the loop of its group, with
pytest-asyncio and anyio or without.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from coordinator.testing.running import VirtualTest
    from coordinator.testing.server import CoordinatorServers
    from coordinator.testing.virtual import VirtualCoordinator

ON_VIRTUAL_TIME = "virtual_group"
OTHER_LOOPS = ("asyncio", "anyio")
"""Markers by which other plugins run a test on loops of their own."""


@pytest.fixture
def virtual_coordinator() -> Callable[..., VirtualCoordinator]:
    """Factory of coordinators: `virtual_coordinator(group_initial_rebalance_delay_ms=0)`."""
    from coordinator.testing.virtual import VirtualCoordinator

    return VirtualCoordinator


@pytest.fixture
def virtual_group(request: pytest.FixtureRequest) -> Iterator[VirtualTest]:
    """Makes a group on virtual time: `group = virtual_group()`, with settings of the coordinator.

    See `coordinator.testing.VirtualGroup`.
    """
    if not isinstance(request.node, VirtualTimeTest):
        pytest.fail("a test on virtual time awaits: write `async def`", pytrace=False)
    from coordinator.testing.running import VirtualTest

    test = VirtualTest()
    try:
        yield test
    finally:
        test.close()


@pytest.fixture
def coordinator_server() -> Iterator[CoordinatorServers]:
    """Starts a node on a free port: `server = coordinator_server()`, then `server.address`.

    See `coordinator.testing.CoordinatorServer`.
    """
    from coordinator.testing.server import CoordinatorServers

    with CoordinatorServers() as servers:
        yield servers


class VirtualTimeTest(pytest.Function):
    """A coroutine function that runs on the loop of its `virtual_group`."""

    @classmethod
    def of(cls, item: pytest.Function) -> VirtualTimeTest:
        """A test in the place of another one of the same function."""
        test: VirtualTimeTest = cls.from_parent(
            item.parent,
            name=item.name,
            callspec=getattr(item, "callspec", None),
            fixtureinfo=item._fixtureinfo,
            keywords=item.keywords,
            originalname=item.originalname,
        )
        test.own_markers = item.own_markers
        return test

    def _getobj(self) -> Callable[..., None]:
        function = super()._getobj()  # type: ignore[no-untyped-call]

        @functools.wraps(function)
        def run(*args: Any, **named: Any) -> None:  # Any: the test's own arguments.
            _test_of(self).run(function, *args, **named)

        return run

    def iter_markers_with_node(self, name: str | None = None) -> Iterator[Any]:
        for node, marker in super().iter_markers_with_node(name):
            if marker.name not in OTHER_LOOPS:
                yield node, marker


@pytest.hookimpl(wrapper=True, trylast=True)  # Before pytest-asyncio makes it a test of its own.
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    made = yield
    if not isinstance(made, list):
        return made
    return [VirtualTimeTest.of(item) if _is_on_virtual_time(item) else item for item in made]


def _is_on_virtual_time(item: object) -> bool:
    return (
        isinstance(item, pytest.Function)
        and ON_VIRTUAL_TIME in item.fixturenames
        and inspect.iscoroutinefunction(item.obj)
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what has happened in the group when a test fails."""
    report = yield
    if report.failed and isinstance(item, VirtualTimeTest):
        if ON_VIRTUAL_TIME in item.funcargs and (text := _test_of(item).transcript()):
            report.sections.append(("virtual group", text))
    return report


def _test_of(item: pytest.Function) -> VirtualTest:
    test: Any = item.funcargs[ON_VIRTUAL_TIME]  # Any: pytest has values of fixtures as objects.
    return test  # type: ignore[no-any-return]
