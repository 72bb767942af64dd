"""The description that package indexes show: its links lead into the public repository."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from tests.wheels import build_hooks

URL = "https://example.org/it"


@pytest.mark.parametrize(
    ("text", "with_url", "without"),
    [
        ("[a](b/c.md)", f"[a]({URL}/blob/HEAD/b/c.md)", "a"),
        ("[`a/`](b/c.md#d), [e](f)", f"[`a/`]({URL}/blob/HEAD/b/c.md#d), [e]({URL}/blob/HEAD/f)",
         "`a/`, e"),
        ("![a](b.png)", f"![a]({URL}/raw/HEAD/b.png)", "a"),
        ("[a](https://x.org/y)", "[a](https://x.org/y)", "[a](https://x.org/y)"),
        ("[a](#b) [c](mailto:d@e.f)", "[a](#b) [c](mailto:d@e.f)", "[a](#b) [c](mailto:d@e.f)"),
        ("```\n[a](b)\n```\n[a](b)", f"```\n[a](b)\n```\n[a]({URL}/blob/HEAD/b)",
         "```\n[a](b)\n```\na"),
    ],
)  # fmt: skip
def test_links_lead_into_the_repository_or_nowhere(text, with_url, without):
    hooks = build_hooks()
    assert hooks.with_absolute_links(text, URL) == with_url
    assert hooks.with_absolute_links(text, "") == without


def test_an_older_python_comes_to_pips_check_of_the_version(monkeypatch):
    """Up to 3.10 the standard library reads no TOML; there hatchling brings a package that does."""
    monkeypatch.setitem(sys.modules, "tomllib", None)
    monkeypatch.setitem(sys.modules, "tomli", ModuleType("tomli"))
    assert build_hooks.__wrapped__().tomllib is sys.modules["tomli"]
