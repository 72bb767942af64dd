"""The page of settings is the settings; `--rewrite` writes its table anew."""

from __future__ import annotations

from pathlib import Path

from coordinator.core.setting import Setting
from coordinator.settings import SETTINGS

PAGE = Path(__file__).parents[3] / "deploy/docs/settings.md"
TABLE = "| setting | default | unit | bounds | meaning |\n|---|---|---|---|---|\n"


def code(value: object) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value != "" else "empty"


def row(name: str, setting: Setting) -> str:
    unit = setting.bounds.unit if setting.bounds is not None else ""
    allowed = ", ".join(map(code, setting.choices)) or str(setting.bounds or "–")
    meaning = setting.meaning.replace("|", "\\|").replace("*", "\\*")
    return f"| `{name}` | {code(setting.default)} | {unit or '–'} | {allowed} | {meaning} |\n"


def test_the_page_has_every_setting_with_its_default_unit_bounds_and_meaning(request):
    head = PAGE.read_text().partition(TABLE)[0]
    table = TABLE + "".join(row(name, setting) for name, setting in SETTINGS.items())
    if request.config.getoption("--rewrite"):
        PAGE.write_text(head + table)
    assert PAGE.read_text() == head + table
