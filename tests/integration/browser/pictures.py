"""Photographs of a real console: `deploy/console.png` and `deploy/console-groups.png`.

Part of `poe pictures`. Ids, times and offsets differ from one picture to the next.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from playwright.sync_api import Page, sync_playwright

from coordinator.assignors import TopicPartition
from coordinator.client import BlockingMember, Revoking
from coordinator.operator.admin import GroupAdmin
from tests.integration.browser.conftest import CHROMIUM, FLAGS
from tests.kit.documents import ROOT
from tests.kit.patience import HANG_S
from tests.kit.serving import Process

GROUP = "orders"
LOG_END = 1_000
BUSY_S = 1.2
"""Time that one of the members takes to give its partitions back."""
OTHERS = {"billing": 3, "clickstream-enrich": 2, "fraud-scoring": 3, "invoices-eu": 4}
NIGHTLY = 230
"""Number of groups without members."""


@contextmanager
def working(address: str, group: str, name: str, *, partitions: int = 6) -> Iterator[None]:
    """A member in a thread, that commits; etl-2 takes its time to give partitions back."""
    member = BlockingMember(
        address, group, {group: partitions}, client_id=name, heartbeat_interval_ms=200,
        log_ends=lambda keys: dict.fromkeys(keys, LOG_END), log_ends_interval_s=0.3,
    )  # fmt: skip
    ends = threading.Event()

    def run() -> None:
        with member:
            while not ends.is_set():
                events = member.poll(timeout=0.1)
                if name == "etl-2" and any(isinstance(event, Revoking) for event in events):
                    time.sleep(BUSY_S)
                for key in () if events else member.assignment:
                    if member.committed([key])[key] < 0:
                        member.commit({key: LOG_END - 17 * (key.partition + 1)})

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def photograph(page: Page, console: str, address: str) -> None:
    """Make both pictures."""
    with ExitStack() as members:
        start(members, address, GROUP, ("etl-1", "etl-2"))
        page.goto(f"{console}#/groups/{GROUP}?partitions=1")
        page.get_by_text("Members (2)").wait_for()
        page.get_by_text(f"{LOG_END - 17 * 6}").wait_for()
        start(members, address, GROUP, ("etl-3",))
        page.get_by_text("Members (3)").wait_for()
        page.locator("#group-state", has_text="Stable").wait_for()
        newest = page.locator("#rebalances details").filter(has_text="etl-3").first
        newest.locator("summary").click()
        newest.locator("img").evaluate("picture => picture.decode()")
        page.screenshot(path=ROOT / "deploy/console.png", full_page=True)

        for group, count in OTHERS.items():
            start(members, address, group, [f"{group}-{n}" for n in range(count)])
        with GroupAdmin(address) as admin:
            for number in range(NIGHTLY):
                key = TopicPartition("t", 0)
                admin.commit(f"nightly-{number:03}", {key: 1}, expected={key: -1})
        page.goto(f"{console}#/?sort=lag")
        page.get_by_text(f"{1 + len(OTHERS) + NIGHTLY} groups").wait_for()
        for group, count in OTHERS.items():
            row = page.locator("#groups-rows tr").filter(has_text=group)
            row.filter(has_text="Stable").filter(has_text=str(count)).wait_for()
            row.filter(has_not_text="–").wait_for()  # Its members have reported ends.
        page.screenshot(path=ROOT / "deploy/console-groups.png")


def start(members: ExitStack, address: str, group: str, names: Sequence[str]) -> None:
    """Start members that work until the stack is closed."""
    for name in names:
        members.enter_context(working(address, group, name))


def main() -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    with Process(*FLAGS) as server, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=CHROMIUM)
        page = chromium.new_page(viewport={"width": 1100, "height": 620})
        page.set_default_timeout(1000 * HANG_S)
        photograph(page, server.console, server.address)
        chromium.close()
