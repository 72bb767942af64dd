"""The page of limits is the limits; `--rewrite` writes its table anew."""

from __future__ import annotations

from pathlib import Path

from coordinator.service.bounds import Check, Elsewhere, Items
from coordinator.service.grpc.message_limits import limits_of
from tests.service.test_message_limits import WAYS, is_limited

PAGE = Path(__file__).parents[2] / "deploy/docs/limits.md"
REFUSALS = {"SessionRequest": "INVALID_REQUEST"}
"""Answers to requests that are refused in a message of their stream, not by its status."""
TABLE = "| field | limit | beyond it |\n|---|---|---|\n"


def row(field: str, limit: Check, refusal: str) -> str:
    name = field.removeprefix("coordinator.v1.")
    if isinstance(limit, Elsewhere):
        most = f"{limit.limit} characters" if limit.limit.isdigit() else f"`{limit.limit}`"
        return f"| `{name}` | {most} | {limit.answer} |\n"
    if isinstance(limit, Items):
        setting = f" (`{limit.setting}`)" if limit.setting else ""
        return f"| `{name}` | {limit.most:,} items{setting}: {limit.why} | {refusal} |\n"
    return f"| `{name}` | {limit.most:,} characters: {limit.why} | {refusal} |\n"


def table() -> str:
    found = {way[-1].full_name: (it, way[-1]) for it, way in WAYS.values() if is_limited(way[-1])}
    rows = (
        row(name, limit, REFUSALS.get(kind.name, "INVALID_ARGUMENT"))
        for name, (kind, field) in found.items()
        for limit in limits_of(field)
    )
    return TABLE + "".join(rows)


def test_the_page_has_every_limit_with_its_setting_and_its_reason(request):
    head = PAGE.read_text().partition(TABLE)[0]
    if request.config.getoption("--rewrite"):
        PAGE.write_text(head + table())
    assert PAGE.read_text() == head + table()
