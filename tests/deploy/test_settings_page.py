"""The page of settings is the settings; `--rewrite` writes its table anew."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

from coordinator.settings import BOUNDS, CHOICES, Settings, meanings

PAGE = Path(__file__).parents[2] / "deploy/docs/settings.md"
TABLE = "| setting | default | bounds | meaning |\n|---|---|---|---|\n"
MOST = 2**31 - 1
"""A bound that is only the type's."""


def code(value: object) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value not in ("", None) else "empty"


def bounds(name: str) -> str:
    if name in BOUNDS:
        low, high = BOUNDS[name]
        return f"at least {low:,}" if high == MOST else f"{low:,} to {high:,}"
    return ", ".join(f"`{choice}`" for choice in CHOICES.get(name, ())) or "–"


def table() -> str:
    notes = meanings()
    return TABLE + "".join(
        f"| `{field.name}` | {code(field.default)} | {bounds(field.name)} | "
        + notes[field.name].replace("|", "\\|").replace("*", "\\*")
        + " |\n"
        for field in fields(Settings)
    )


def test_the_page_has_every_setting_with_its_default_its_bounds_and_its_meaning(request):
    head = PAGE.read_text().partition(TABLE)[0]
    if request.config.getoption("--rewrite"):
        PAGE.write_text(head + table())
    assert PAGE.read_text() == head + table()
