"""The page of Kafka's APIs is the table of APIs; `--rewrite` writes its table anew."""

from __future__ import annotations

from pathlib import Path

from coordinator.kafka.apis import APIS

PAGE = Path(__file__).parents[3] / "deploy/docs/kafka-apis.md"
TABLE = "| API | key | versions | here |\n|---|---|---|---|\n"


def table() -> str:
    rows = (
        f"| {api.name} | {key} | {_versions(api.low, api.high)} | {api.note} |\n"
        for key, api in sorted(APIS.items())
    )
    return TABLE + "".join(rows)


def _versions(low: int, high: int) -> str:
    return f"{low} to {high}" if low < high else str(low)


def test_the_page_has_every_api_with_its_versions(request):
    head = PAGE.read_text().partition(TABLE)[0]
    if request.config.getoption("--rewrite"):
        PAGE.write_text(head + table())
    assert PAGE.read_text() == head + table()
