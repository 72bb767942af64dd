"""Refreshes of the console disturb no reader, and its addresses can be kept and sent."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Route, expect

from tests.integration.browser.conftest import PHONE, WIDE, opened
from tests.integration.browser.test_accessibility import show
from tests.kit.patience import HANG_S


@pytest.fixture(scope="module")
def page(browser, busy):
    with opened(browser, busy.console, WIDE) as page:
        yield page


def refreshed(page, times: int = 2) -> None:
    """Wait until the page has asked for its content again."""
    for _ in range(times):
        with page.expect_response(lambda answer: "/api/" in answer.url):
            pass


PLACE = "document.activeElement.getBoundingClientRect().top"


GO_BACK_AS_A_SCROLL_ENDS = """() => {
    addEventListener("popstate", () => dispatchEvent(new Event("scrollend")), { once: true });
    history.back();
}"""
"""The end of a scroll is told late: by then the address may be another."""


def until(is_true) -> None:
    """Wait for a condition; the page's policy forbids Playwright's own way."""
    end = time.monotonic() + HANG_S
    while not is_true():
        assert time.monotonic() < end


def focus(page) -> str:
    return page.evaluate("document.activeElement.textContent")


def rows(page, body: str) -> list[str]:
    return page.locator(f"#{body} tr td:first-child").all_inner_texts()


def test_a_refresh_leaves_focus_folds_and_place(page, busy):
    show(page, busy, "#/groups/orders")
    page.get_by_text("Partitions (600)").click()
    page.locator("#rebalances summary").first.click()
    expect(page.locator("#partitions tr")).to_have_count(50)
    page.get_by_label("Pages of partitions").get_by_role("button", name="Next").focus()
    page.locator("#rebalances img").evaluate("picture => picture.decode()")
    place = page.evaluate(PLACE)
    assert page.evaluate("scrollY") > 0
    refreshed(page)
    assert focus(page) == "Next"
    assert page.evaluate(PLACE) == place
    assert page.locator("#rebalances details").first.get_attribute("open") is not None
    assert page.locator("#partitions-fold").get_attribute("open") is not None


def test_rows_that_change_places_leave_the_focus(page, busy):
    show(page, busy, "#/?sort=rebalance")
    link = page.locator("#groups-rows a", has_text="clicks")
    link.focus()
    before = rows(page, "groups-rows")
    busy.groups.rebalance("another", {"a-01": ""}, partitions=1)
    expect(page.locator("#groups-rows tr", has_text="another")).to_be_visible()
    assert rows(page, "groups-rows").index("clicks") == before.index("clicks") + 1
    assert focus(page) == "clicks"


def test_a_focused_row_that_is_gone_leaves_the_focus_on_the_page(page, busy):
    busy.groups.empty(["short-lived"])
    show(page, busy, "#/?find=lived")
    page.locator("#groups-rows a").focus()
    busy.groups.admin.delete_group("short-lived")
    expect(page.get_by_text("No group matches.")).to_be_visible()
    assert focus(page) == "Groups"


def test_a_paused_page_asks_for_nothing(page, busy):
    show(page, busy, "#/groups/orders")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#status")).to_contain_text("Paused at")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.install()
    page.clock.fast_forward(60_000)
    assert asked == []
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#status")).to_have_text("Live")


def test_addresses_survive_a_reload_and_show_a_colleague_the_same(browser, busy, page):
    show(page, busy, "#/groups/orders")
    page.get_by_text("Partitions (600)").click()
    page.locator("#partitions-list th a", has_text="Lag").click()
    # A browser follows a link after the click, and rows that come move the buttons below them.
    lag = page.locator("#partitions-list th", has_text="Lag")
    expect(lag).to_have_attribute("aria-sort", "descending")
    expect(page.locator("#main[aria-busy=false]")).to_be_visible()
    page.get_by_label("Pages of partitions").get_by_role("button", name="Next").click()
    expect(page.get_by_text("51 to 100 of 600")).to_be_visible()
    shown = rows(page, "partitions")
    page.reload()
    expect(page.get_by_text("51 to 100 of 600")).to_be_visible()
    assert rows(page, "partitions") == shown
    with opened(browser, page.url, PHONE) as colleague:
        expect(colleague.get_by_text("51 to 100 of 600")).to_be_visible()
        lag = colleague.locator("#partitions tr td:nth-child(5)").all_inner_texts()
        assert lag == sorted(lag, key=lambda text: -int(re.sub(r"\D", "", text)))


def test_a_rebalance_has_an_address_of_its_own(page, busy):
    show(page, busy, "#/groups/orders")
    newest = page.locator("#rebalances details").first
    newest.locator("summary").click()
    newest.get_by_role("link", name="All about generation").click()
    expect(page.locator("#generation-title")).to_contain_text("of orders")
    expect(page.locator("#main[aria-busy=false]")).to_be_visible()
    assert focus(page).startswith("Generation")
    address = page.url
    picture = page.locator("#generation img")
    picture.evaluate("picture => picture.decode()")
    page.go_back()
    expect(page.locator("#group-title")).to_be_visible()
    assert newest.get_attribute("open") is not None
    page.goto("about:blank")
    page.goto(address)
    expect(page.locator("#generation-title")).to_contain_text("of orders")
    page.get_by_text("Members that joined").click()
    joined = page.get_by_role("table", name="Members that joined")
    expect(joined.locator("tbody tr").first).to_be_visible()


def test_a_generation_shows_where_partitions_went(page, busy):
    show(page, busy, "#/groups/moving")
    left = page.locator("#rebalances details").filter(has_text="member left").first
    left.locator("summary").click()
    left.get_by_role("link", name="All about generation").click()
    expect(page.get_by_text("Partitions that moved or stood idle (12)")).to_be_visible()
    moves = page.get_by_role("table", name="Partitions that moved or stood idle")
    gone = moves.get_by_role("row").filter(has_text="it left")
    assert gone.count() == 2
    assert "mover-03" in gone.first.inner_text()
    page.get_by_text("Members that were removed (1)").click()
    assert "mover-03" in page.get_by_role("table", name="Members that were removed").inner_text()


def test_back_leads_to_the_place_in_the_list_that_was_left(page, busy):
    show(page, busy, "#/?sort=lag")
    page.locator("#groups-rows a", has_text="nightly-030").scroll_into_view_if_needed()
    page.evaluate("scrollTo(0, 700)")
    until(lambda: page.evaluate("history.state.y") == 700)
    page.locator("#groups-rows a").nth(25).click()
    expect(page.locator("#group-title")).to_be_visible()
    until(lambda: page.evaluate("scrollY") == 0)
    page.go_back()
    until(lambda: page.evaluate("scrollY") == 700)


def test_a_late_answer_does_not_move_the_list_that_somebody_has_come_back_to(page, busy):
    show(page, busy, "#/?sort=lag")
    page.evaluate("scrollTo(0, 700)")
    until(lambda: page.evaluate("history.state.y") == 700)
    late: list[Route] = []
    page.route("**/api/group?*", lambda asked: late.append(asked))  # noqa: PLW0108  # Playwright marks it.
    page.locator("#groups-rows a").nth(25).click()
    until(lambda: page.evaluate("scrollY") == 0)
    page.evaluate(GO_BACK_AS_A_SCROLL_ENDS)
    until(lambda: page.evaluate("scrollY") == 700)
    for asked in late:
        with page.expect_response(asked.request.url):
            asked.continue_()
    page.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    page.unroute("**/api/group?*")
    assert late
    assert page.evaluate("scrollY") == 700


def test_groups_are_filtered_by_state_and_sorted_by_every_column(page, busy):
    show(page, busy, "#/")
    page.locator("#state").select_option("Rebalancing")
    expect(page.locator("#groups-rows tr")).to_have_count(1)
    assert rows(page, "groups-rows") == ["billing"]
    assert "now, for" in page.inner_text("#groups-rows")
    page.locator("#state").select_option("Stable")
    page.get_by_role("columnheader", name="Lag").get_by_role("link").click()
    expect(page.locator("#groups-rows tr").first).to_contain_text("orders")
    assert page.locator("th[aria-sort]").all_inner_texts() == ["Lag"]
    page.get_by_role("columnheader", name="Members").get_by_role("link").click()
    expect(page.locator("th[aria-sort]")).to_have_text("Members")
    expect(page.locator("#groups-rows tr").first).to_contain_text("60")
    assert "state=stable" in page.url


def test_a_rebalancing_group_says_whom_it_waits_for(page, busy):
    show(page, busy, "#/groups/billing")
    assert "Since" in page.inner_text("#phase-since")
    assert "2 of 4 members" in page.inner_text("#phase-awaited")
    assert sorted(rows(page, "awaited-rows")) == ["bill-02", "bill-03"]
    assert "ago" in page.inner_text("#awaited-rows tr:first-child")
    order = page.evaluate("""() => ["phase", "rebalances", "members-fold"].map(
        id => document.getElementById(id).getBoundingClientRect().top)""")
    assert order == sorted(order)


def test_a_phone_shows_the_whole_picture_of_a_rebalance(browser, busy):
    with opened(browser, f"{busy.console}#/groups/clicks", PHONE) as phone:
        phone.locator("#rebalances summary").first.click()
        picture = phone.locator("#rebalances img")
        picture.evaluate("picture => picture.decode()")
        assert "width=narrow" in picture.evaluate("picture => picture.currentSrc")
        around = phone.locator("#rebalances .picture")
        assert around.evaluate("box => box.scrollWidth <= box.clientWidth")


def test_nodes_and_the_version_are_shown(page, busy):
    show(page, busy, "#/nodes")
    assert busy.address in page.inner_text("#nodes-rows")
    expect(page.locator("#shards-rows tr")).to_have_count(16)
    assert re.fullmatch(r"Version \d+\.\d+\.\d+", page.inner_text("#version"))


@pytest.mark.parametrize(
    "fragment", ["#%", "#/groups/%E0%A4%A/generations/x", "#/?page=-3&sort=no"]
)
def test_an_address_that_is_broken_breaks_nothing(page, busy, fragment):
    page.goto("about:blank")
    page.goto(f"{busy.console}{fragment}")
    expect(page.locator("#main[aria-busy=false]")).to_be_visible()
    expect(page.locator("main > section:not([hidden])")).to_have_count(1)
