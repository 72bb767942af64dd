"""The map shows the imports that there are, and every file of core; `--rewrite` draws it anew."""

from __future__ import annotations

import re
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
MAP = ROOT / "coordinator" / "ARCHITECTURE.md"
PRODUCT = ROOT / "coordinator"
IMPORT = re.compile(
    r"^ *(?:from|import) (?:(timer)\b|coordinator(?:\.| import )(\w+))", re.MULTILINE
)
TESTING = "coordinator.testing"
"""Here processes, their loops and what they report know each other."""
BEGIN, END = "<!-- imports: drawn by tests/tools/test_map.py -->\n```\n", "```\n<!-- /imports -->"


def is_of(package: str, module: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def parts_in_order() -> list[str]:
    """The parts of the product, as the stack in tests/imports.toml has them: the top first."""
    contracts = tomllib.loads((ROOT / "tests/imports.toml").read_text())["tool"]["importlinter"]
    (stack,) = [contract for contract in contracts["contracts"] if contract["id"] == "stack"]
    return [part.strip() for layer in stack["layers"] for part in re.split("[|:]", layer)]


def imports_of(part: str, known: set[str]) -> list[str]:
    place = PRODUCT / part
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    found = {name for file in files for pair in IMPORT.findall(file.read_text()) for name in pair}
    return sorted(found & known - {part})


def drawing() -> str:
    parts = parts_in_order()
    known = {*parts, "timer"}
    rows = [(part, imports_of(part, known)) for part in parts]
    return "".join(f"{part:<14} {', '.join(row) or '–'}\n" for part, row in rows)


def test_the_map_shows_who_imports_whom(request):
    text = MAP.read_text()
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    if request.config.getoption("--rewrite"):
        MAP.write_text(head + BEGIN + drawing() + END + tail)
    assert MAP.read_text() == head + BEGIN + drawing() + END + tail


SESSIONS = [f"core/sessions{folder}" for folder in ("", "/arrive", "/handoff", "/leave", "/plan")]


@pytest.mark.parametrize("room", ["core", "core/classic", "core/journal", "core/values", *SESSIONS])
def test_the_map_names_every_file_of(room):
    section = MAP.read_text().partition(f"### `{room}/`\n")[2].partition("\n#")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    there = {file.stem for file in (PRODUCT / room).glob("*.py")} - {"__init__"}
    assert sorted(named) == sorted(there)


@pytest.mark.parametrize(
    ("package", "for_types_too"), [("coordinator", False), ("timer", False), ("coordinator", True)]
)
def test_no_modules_import_each_other(package, for_types_too):
    """Imports for types alone count too, but in `testing`."""
    graph = grimp.build_graph(
        package, exclude_type_checking_imports=not for_types_too, cache_dir=None
    )
    modules = {name for name in graph.modules if not for_types_too or not is_of(TESTING, name)}
    assert modules
    TopologicalSorter(
        {name: graph.find_modules_directly_imported_by(name) & modules for name in modules}
    ).prepare()  # Raises CycleError, with the cycle.


def walks() -> list[tuple[str, int, list[str]]]:
    """The walks of the map: what is followed, how many files it says, and these."""
    text = MAP.read_text().partition("## Five walks")[2].split("```")[1]
    found = []
    for walk in text.strip().split("\n\n"):
        head, *rooms = walk.splitlines()
        title, _, size = head.rpartition(": ")
        files = [f"{room}/{name}.py" for room, *names in map(str.split, rooms) for name in names]
        found.append((title, int(size.split()[0]), files))
    return found


@pytest.mark.parametrize(("count", "files"), [walk[1:] for walk in walks()])
def test_a_walk_names_files_that_there_are_and_counts_them(count, files):
    rooms = {file: ROOT if file.startswith("timer/") else PRODUCT for file in files}
    assert not [file for file, room in rooms.items() if not (room / file).is_file()]
    assert len(rooms) == len(files) == count
