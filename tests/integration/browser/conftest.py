"""A node and a browser for the tests of a module."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from coordinator.assignors import TopicPartition
from tests.conftest import CHROMIUM_NAMES
from tests.integration.browser.groups import Groups
from tests.kit.patience import HANG_S
from tests.kit.serving import Process

FLAGS = (
    "--console-listen", "127.0.0.1:0", "--group-initial-rebalance-delay-ms", "100",
    "--group-min-session-timeout-ms", "1000",
)  # fmt: skip
CHROMIUM = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
WIDE = {"width": 1360, "height": 900}
PHONE = {"width": 390, "height": 844}
HOSTILE = "<img src=x onerror=alert(1)> \u202egnp\x1b[31m" + "W" * 200


@pytest.fixture(scope="module")
def busy():
    """A node with a large group, a cooperative one, one that rebalances, and 300 empty ones."""
    with Process(*FLAGS) as node, Groups(node.address) as groups:
        node.groups = groups
        make_busy(groups)
        yield node


def make_busy(groups: Groups) -> None:
    """Make the groups of the busy node."""
    ids = groups.rebalance("orders", dict.fromkeys(named("etl", 59), ""), partitions=600)
    ids = groups.rebalance("orders", {**ids, "etl-60": ""}, partitions=600)
    keys = [TopicPartition("orders", p) for p in range(600)]
    offsets = {key: 1_000 + key.partition for key in keys[:-5]}
    groups.progress("orders", ids["etl-01"], offsets, dict.fromkeys(keys, 2_000))
    two = dict.fromkeys(named("enrich", 2), "")
    two = groups.rebalance("clicks", two, partitions=12, protocol="cooperative-sticky")
    groups.rebalance("clicks", two, partitions=12, protocol="cooperative-sticky")
    three = groups.rebalance("moving", dict.fromkeys(named("mover", 3), ""), partitions=12)
    groups.leave("moving", three.popitem()[1])
    groups.rebalance("moving", three, partitions=12)
    three = groups.rebalance("billing", dict.fromkeys(named("bill", 3), ""), partitions=6)
    groups.join("billing", "bill-04")
    groups.join("billing", "bill-01", three["bill-01"])
    groups.rebalance(HOSTILE, {HOSTILE[:200]: ""}, topic=HOSTILE[:100], partitions=2)
    groups.empty([f"nightly-{number:03}" for number in range(300)])


def named(name: str, count: int) -> list[str]:
    """Client ids."""
    return [f"{name}-{number:02}" for number in range(1, count + 1)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item):
    """Keep what the node has logged, but for what is usual, beside a test that failed."""
    report = yield
    for node in item.funcargs.values() if report.failed else ():
        if isinstance(node, Process):
            lines = [line for line in node.lines if line.get("level") != "info"]
            report.sections.append(("the node's log", "\n".join(map(str, lines[-20:]))))
    return report


# Playwright keeps a loop running in this thread, so it ends before other modules' tests begin.
@pytest.fixture(scope="module")
def browser():
    path = next(filter(None, map(shutil.which, CHROMIUM_NAMES)))
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=path, args=CHROMIUM, timeout=1000 * HANG_S
        )
        expect.set_options(timeout=1000 * HANG_S)
        yield chromium
        chromium.close()


@contextmanager
def opened(browser: Browser, url: str, size: dict[str, int], **options: object) -> Iterator[Page]:
    """A page that shows an address; it must have logged no error when it is closed."""
    page = browser.new_page(viewport=size, **options)
    page.set_default_timeout(1000 * HANG_S)
    trouble: list[str] = []
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("console", lambda line: trouble.append(line.text) if is_trouble(line) else None)
    page.goto(url)
    yield page
    page.close()
    assert trouble == []


def is_trouble(line: ConsoleMessage) -> bool:
    """An error, but for those that a browser logs itself when it asks for what is not there."""
    return line.type == "error" and "status of 404" not in line.text
