"""Every page of the console on a busy node, wide and narrow, light and dark: axe, and words."""

from __future__ import annotations

from importlib import resources
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from tests.integration.browser.conftest import HOSTILE, PHONE, WIDE, opened

PAGES = {
    "groups": "#/?sort=lag",
    "no group found": "#/?find=nothing+like+it",
    "large group": "#/groups/orders",
    "large group unfolded": "#/groups/orders?members=2&partitions=2&sort=lag",
    "cooperative group": "#/groups/clicks",
    "rebalancing group": "#/groups/billing?members=1&partitions=1",
    "empty group": "#/groups/nightly-007?members=1&partitions=1",
    "hostile names": f"#/groups/{quote(HOSTILE, safe='')}?members=1&partitions=1",
    "generation": "#/groups/orders/generations/2",
    "generation with moves": "#/groups/moving/generations/2",
    "generation that is gone": "#/groups/orders/generations/99",
    "nodes": "#/nodes",
    "no such group": "#/groups/nobody",
    "no such page": "#/nowhere/at/all",
}
AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")

RUN_AXE = """async (rules) => {
  const rows = { include: [["html"]], exclude: [["tbody tr:nth-child(n + 6)"]] };
  const options = { resultTypes: ["violations"], preload: false };
  if (rules) options.runOnly = rules;
  const found = await axe.run(rows, options);
  return found.violations.filter(v => ["serious", "critical"].includes(v.impact)).map(v =>
    `${v.id}: ${v.nodes.slice(0, 3).map(n => n.html.slice(0, 200)).join(" | ")}`);
}"""
"""Violations that are serious or critical, with the first elements that have them.

The rows of a table are alike: the first five stand for all, since axe takes its time for each.
"""

SCHEMES = {"light": None, "dark": ["color-contrast", "link-in-text-block"]}
"""Rules for each scheme; None: all. In the dark only colours are others."""

BROKEN_WORDS = r"""() => {
  const broken = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    for (const word of node.data.matchAll(/[\p{L}\p{N}]+/gu)) {
      if (word[0].length > 24) continue;
      const range = new Range();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const lines = new Set([...range.getClientRects()].map(rect => Math.round(rect.bottom / 4)));
      if (lines.size > 1) broken.push(word[0]);
    }
  }
  return broken;
}"""
"""Words on more than one line that would fit into one."""

GO = """fragment => new Promise(done => {
  addEventListener("hashchange", done, { once: true });
  location.hash = fragment;
}).then(() => null)"""


def show(page, busy, fragment: str) -> None:
    """Open an address of the console in a new document, and wait until its content is shown."""
    page.goto("about:blank")
    page.goto(f"{busy.console}{fragment}")
    expect(page.locator("#main[aria-busy=false]")).to_be_visible()


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["1360", "390"])
def test_every_page_can_be_read_by_everybody(browser, busy, size):
    with opened(browser, busy.console, size) as page:
        page.evaluate(AXE)
        found = {}
        for name, fragment in PAGES.items():
            page.evaluate(GO, fragment)
            expect(page.locator("#main[aria-busy=false]")).to_be_visible()
            for scheme, rules in SCHEMES.items():
                page.emulate_media(color_scheme=scheme)
                found[f"{name}, {scheme}"] = page.evaluate(RUN_AXE, rules)
            if page.evaluate("document.documentElement.scrollWidth") > size["width"]:
                found[name] = ["is wider than the window"]
            found[f"{name}, words"] = page.evaluate(BROKEN_WORDS)
        assert {name: wrong for name, wrong in found.items() if wrong} == {}
