"""Writes what is made of the settings of members: their typed keywords, and the page of settings.

    python deploy/docs/member_settings.py          # after a change of a setting, or of this file
    python deploy/docs/member_settings.py --check  # exit status 1 if a file is not what this writes

The settings are read from the metadata of their fields. Type checkers need a `TypedDict` that is
written out.
"""

from __future__ import annotations

import sys
import textwrap
from dataclasses import replace
from pathlib import Path

from coordinator.client.settings import configs, process
from coordinator.client.settings.setting import MemberSetting, settings_of

ROOT = Path(__file__).parents[2]
TYPED = ROOT / "coordinator/client/settings/typed.py"
PAGE = ROOT / "deploy/docs/member-settings.md"

WISHES = {  # A wish that is left out is no None.
    name: replace(setting, typed=setting.typed.removesuffix(" | None"))
    for name, setting in settings_of(configs.GroupWishes).items()
}
MEMBERS = (
    configs.MemberConfig,
    configs.ClassicConfig,
    configs.SessionConfig,
    process.ProcessConfig,
)
WORKERS = settings_of(process.WorkerConfig)

HEAD = '''"""Settings of members as their callers write them. Never edit: run `poe settings`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypedDict

from coordinator.client.log_ends import LogEnds
from coordinator.dial import Credentials
'''
POLICY = """Policy that a member of a session group asks for; it counts if the group has none yet.

    Each may be left out. The name of a time ends with its unit.
    """
MEMBER = """Keyword arguments of members of both protocols; each may be left out.

    The name of a time ends with its unit. One of the other protocol is refused, in a sentence that
    says what to write instead.
    """
WORKER = "Keyword arguments of a `Worker`: those of members of its protocol; each may be left out."

TABLES = {
    "Members of both protocols": settings_of(configs.MemberConfig)
    | settings_of(process.ProcessConfig),
    "Members of classic groups": settings_of(configs.ClassicConfig),
    "Members of session groups": settings_of(configs.SessionConfig),
    "Policy of a session group": WISHES,
    "Workers": WORKERS,
}
INTRODUCTIONS = {
    "Members of both protocols": "A worker has these too, except those with another place.",
    "Members of classic groups": "",
    "Members of session groups": "",
    "Policy of a session group": "The keys of `wishes`. They count if the group has no policy yet; "
    "[operators](sessions.md#10-operate) change it.",
    "Workers": "Settings of a worker that are not its member's. Its own parameters are described "
    "with [the class](reference/worker.md).",
}
COLUMNS = "| setting | default | unit | bounds | meaning |\n|---|---|---|---|---|\n"
TITLE = """# Settings of members

Members and workers take settings as typed keywords: `Worker("localhost:7400", "billing", \
topics={"invoices": 12}, grace_ms=30_000)`. What is refused comes with \
what to write instead. Names end in their unit. Nodes have [settings of their own](settings.md).
"""


def default_of(setting: MemberSetting) -> str:
    """The default, a number as Python writes it."""
    is_whole = isinstance(setting.default, int) and not isinstance(setting.default, bool)
    return f"{setting.default:_}" if is_whole else str(setting.default)


def description(setting: MemberSetting) -> str:
    """Meaning, protocol, unit, bounds or choices, and default."""
    whose = f"{setting.protocol} groups only" if setting.protocol else ""
    unit = f"unit: {setting.kind.unit}" if setting.kind.unit else ""
    facts = [whose, unit, setting.kind.allowed, f"default: {default_of(setting)}"]
    return f"{setting.meaning} [{'; '.join(filter(None, facts))}]"


def typed_dict(name: str, base: str, meaning: str, settings: dict[str, MemberSetting]) -> str:
    """A `TypedDict`, in which each setting is followed by its description."""
    lines = [f"class {name}({base}, total=False):", f'    """{meaning}"""', ""]
    for setting, told in settings.items():
        lines.append(f"    {setting}: {told.typed}".replace("'", '"'))
        described = f'"""{description(told)}"""'
        lines += textwrap.wrap(
            described, 100, initial_indent="    ", subsequent_indent="    ",
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
    return "\n".join(lines) + "\n"


def typed() -> str:
    """The module of typed keywords."""
    members = {name: setting for kind in MEMBERS for name, setting in settings_of(kind).items()}
    return "\n\n".join(
        (
            HEAD,
            typed_dict("PolicyWishes", "TypedDict", POLICY, WISHES),
            typed_dict("MemberSettings", "TypedDict", MEMBER, members),
            typed_dict("WorkerSettings", "MemberSettings", WORKER, WORKERS),
        )
    )


def row(name: str, setting: MemberSetting) -> str:
    """A setting as a row of its table."""
    default, meaning = default_of(setting), setting.meaning
    shown = default if " " in default else f"`{default}`"
    if setting.instead:
        meaning += f" In the other protocol: {setting.instead}."
    if setting.in_workers:
        meaning += f" Not in workers: {setting.in_workers}."
    cells = [f"`{name}`", shown, setting.kind.unit or "–", setting.kind.allowed or "–", meaning]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def page() -> str:
    """The page of settings."""
    parts = [TITLE]
    for title, settings in TABLES.items():
        introduction = f"{INTRODUCTIONS[title]}\n\n" if INTRODUCTIONS[title] else ""
        rows = "".join(row(name, setting) for name, setting in settings.items())
        parts.append(f"## {title}\n\n{introduction}{COLUMNS}{rows}")
    return "\n".join(parts)


def main() -> int:
    stale = []
    for path, text in ((TYPED, typed()), (PAGE, page())):
        if "--check" not in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.relative_to(ROOT))
    for each in stale:
        print(f"{each} is not what the settings say: poe settings")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
