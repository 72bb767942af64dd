"""The page of limits is the limits; `--rewrite` writes its table anew."""

from __future__ import annotations

from pathlib import Path

from coordinator.core.limits import Limit
from coordinator.service.validation.messages import limits_of
from tests.unit.service.test_message_limits import WAYS, is_limited

PAGE = Path(__file__).parents[3] / "deploy/docs/limits.md"
REFUSALS = {"SessionRequest": "INVALID_REQUEST"}
"""Answers to requests that are refused in a message of their stream, not by its status."""
TABLE = "| limit | beyond it | fields |\n|---|---|---|\n"


def entry(limit: Limit, refusal: str) -> tuple[str, str]:
    """Return how much `limit` allows and the answer beyond it, as the page says them."""
    if limit.beyond:
        most = f"`{limit.setting}`" if limit.setting else f"{limit.characters} characters"
        return most, limit.beyond
    if limit.items:
        setting = f" (`{limit.setting}`)" if limit.setting else ""
        return f"{limit.items:,} items{setting}: {limit.why}", refusal
    return f"{limit.characters:,} characters: {limit.why}", refusal


def table() -> str:
    """A row for each limit, with all of its fields."""
    found = {
        way[-1].full_name: (setting, way[-1])
        for setting, way in WAYS.values()
        if is_limited(way[-1])
    }
    fields: dict[tuple[str, str], list[str]] = {}
    for name, (kind, field) in found.items():
        for limit in limits_of(field):
            key = entry(limit, REFUSALS.get(kind.name, "INVALID_ARGUMENT"))
            fields.setdefault(key, []).append(f"`{name.removeprefix('coordinator.v1.')}`")
    return TABLE + "".join(
        f"| {most} | {answer} | {', '.join(names)} |\n" for (most, answer), names in fields.items()
    )


def test_the_page_has_every_limit_with_its_setting_and_its_reason(request):
    head = PAGE.read_text().partition(TABLE)[0]
    if request.config.getoption("--rewrite"):
        PAGE.write_text(head + table())
    assert PAGE.read_text() == head + table()
