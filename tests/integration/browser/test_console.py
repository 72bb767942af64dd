"""The console in a real browser: what it shows, that it is live, and that a keyboard is enough."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request

import pytest
from playwright.sync_api import expect

from coordinator.assignors import TopicPartition
from coordinator.client import BlockingMember
from coordinator.operator.admin import GroupAdmin
from tests.integration.browser.conftest import FLAGS, PHONE, WIDE, opened
from tests.integration.browser.test_accessibility import AXE, RUN_AXE, SCHEMES
from tests.kit.patience import HANG_S
from tests.kit.serving import Process


@pytest.fixture(scope="module")
def server():
    with Process(*FLAGS) as server:
        yield server


@pytest.fixture
def page(browser, server):
    with opened(browser, server.console, WIDE) as page:
        yield page


class Worker:
    """A member in a thread of its own, which polls."""

    def __init__(self, server, name: str) -> None:
        options = {"log_ends": lambda keys: dict.fromkeys(keys, 100), "log_ends_interval_s": 0.3}
        self.member = BlockingMember(
            server.address, "orders", {"t": 4}, client_id=name, session_timeout_ms=60_000,
            heartbeat_interval_ms=200, **options,
        )  # fmt: skip
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with self.member:
            while not self._ends.is_set():
                self.member.poll(timeout=0.1)
                for key in self.member.assignment:
                    if key == TopicPartition("t", 0) and self.member.committed([key])[key] < 0:
                        self.member.commit({key: 40})

    def end(self) -> None:
        self._ends.set()
        self._thread.join()


@pytest.fixture(scope="module")
def workers(server):
    some = [Worker(server, "etl-1"), Worker(server, "etl-2")]
    yield some
    for worker in some:
        worker.end()


def test_groups_are_listed_found_and_opened_with_the_keyboard_alone(page, workers):
    page.wait_for_selector("#groups-rows tr")
    expect(page.locator("#status")).to_have_text("Live")
    assert page.inner_text("#groups-rows").startswith("orders")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    page.focus("#filter")
    page.keyboard.type("nothing like it")
    expect(page.locator("#groups-rows tr")).to_have_count(0)
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.wait_for_selector("#groups-rows a")
    while page.evaluate("document.activeElement.textContent") != "orders":
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement !== document.body")
    page.keyboard.press("Enter")
    page.wait_for_selector("#rebalances summary")
    assert page.inner_text("#group-title") == "orders"
    assert page.evaluate("document.activeElement.id") == "group-title"
    assert page.title() == "orders – consumer groups"


def test_of_many_groups_the_first_are_shown_and_the_others_are_found(page, server):
    with GroupAdmin(server.address) as admin:
        for number in range(250):
            key = TopicPartition("t", 0)
            admin.commit(f"fleet-{number:03}", {key: 1}, expected={key: -1})
    expect(page.locator("#groups-rows tr")).to_have_count(50)
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("51 to 100 of")).to_be_visible()
    page.fill("#filter", "Fleet-24")
    expect(page.locator("#groups-count")).to_have_text("10 groups")
    expect(page.locator("#groups-rows tr")).to_have_count(10)
    last = page.inner_text("#groups-rows tr:last-child").split("\t")
    assert last[:4] == ["fleet-249", "Empty", "Classic", "0"]


def test_a_group_shows_its_members_owners_offsets_and_lag(page, workers):
    page.goto(f"{page.url}#/groups/orders")
    expect(page.locator("#members-fold")).not_to_have_attribute("open", "")
    page.get_by_text("Members (2)").click()
    expect(page.locator("#members tr")).to_have_count(2)
    page.get_by_text("Partitions (4)").click()
    expect(page.locator("#partitions")).to_contain_text("60")
    first = page.inner_text("#partitions tr:first-child").split("\t")
    assert first[:5] == ["t", "0", "40", "100", "60"]
    assert first[5].strip() in ("etl-1", "etl-2")
    assert "Stable" in page.inner_text("#group-summary")


def test_a_rebalance_appears_by_itself_explained_and_drawn(page, server, workers):
    page.goto(f"{page.url}#/groups/orders")
    page.wait_for_selector("#rebalances summary")
    before = page.locator("#rebalances summary").count()
    third = Worker(server, "etl-3")
    expect(page.get_by_text("Members (3)")).to_be_visible()
    expect(page.locator("#rebalances summary").nth(before)).to_be_visible()
    everything = page.locator("#rebalances details")
    newest = everything.filter(has_text="because etl-3 (127.0.0.1) joined").first
    newest.locator("summary").focus()
    page.keyboard.press("Enter")
    picture = newest.locator("img")
    picture.wait_for()
    picture.evaluate("picture => picture.decode()")  # It fails if it is no picture.
    assert "because etl-3 (127.0.0.1) joined" in newest.inner_text()
    assert picture.get_attribute("alt").startswith("Timeline of generation")
    for _ in range(2):  # It is asked again, and what is open stays open.
        with page.expect_response(lambda answer: "api/group?" in answer.url):
            pass
    assert newest.get_attribute("open") is not None
    third.end()


def test_an_empty_node_says_how_a_first_worker_joins_and_a_dead_one_that_it_is_gone(browser):
    with Process(*FLAGS) as server:
        page = browser.new_page(viewport=PHONE)
        page.set_default_timeout(1000 * HANG_S)
        page.goto(server.console)
        expect(page.get_by_text("No groups yet")).to_be_visible()
        expect(page.locator("#first-worker-address")).to_have_text(server.address)
        assert "worker.run()" in page.inner_text("#no-groups pre")
        page.evaluate(AXE)
        for scheme, rules in SCHEMES.items():
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate(RUN_AXE, rules) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        expect(page.locator("#status")).to_have_text("Live")
        server.kill()
        expect(page.locator("#status")).to_contain_text("Not live")
        page.close()


def test_ids_that_look_like_html_stay_text(page, server):
    name = "<img src=x onerror=alert(1)>"
    with BlockingMember(server.address, name, {"t": 1}) as member:
        while not member.assignment:
            member.poll(timeout=1.0)
        expect(page.locator("#groups-rows")).to_contain_text("onerror")
        assert page.locator("#groups-rows img").count() == 0


@pytest.mark.parametrize(
    ("path", "host", "status"),
    [
        ("", None, 200),
        ("nothing", None, 404),
        ("api/group?group=nobody", None, 404),
        ("api/timeline.svg?group=orders&generation=x", None, 404),
        ("api/group?group=orders&members=1e9", None, 404),
        ("../server.py", None, 404),
        ("", "evil.example", 421),
        ("api/groups", "evil.example:80", 421),
        ("", "localhost", 200),
    ],
)
def test_only_what_is_asked_for_rightly_is_served(server, path, host, status):
    request = urllib.request.Request(
        f"{server.console}{path}", headers={"Host": host} if host else {}
    )
    try:
        with urllib.request.urlopen(request) as answer:
            found, headers = answer.status, answer.headers
    except urllib.error.HTTPError as error:
        found, headers = error.code, error.headers
    assert found == status
    assert headers["Content-Security-Policy"].startswith("default-src 'self'")


def test_nothing_can_be_changed(server):
    for method in ("POST", "PUT", "DELETE"):
        request = urllib.request.Request(f"{server.console}api/groups", method=method, data=b"")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        assert refused.value.code == 501
