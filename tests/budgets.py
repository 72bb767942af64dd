"""Budgets of the product: lines of each room of the map, and names that several types share.

    python -m tests.budgets                     lower the budgets to what is there
    python -m tests.budgets --against COMMIT    budgets raised since then, without a word on why

`tests/budgets.toml` has the numbers. A budget is raised by hand, in a commit whose message has the
word "budget" and the name of the room or type, and says why. A room is given what it has, up to the
next multiple of `STEP`; one that is far below its budget is to give the rest back.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.tidy import GENERATED, PRODUCT, Source

ROOT = Path(__file__).parents[1]
FILE = Path("tests/budgets.toml")
MAP = Path("coordinator/ARCHITECTURE.md")
STEP = 50
"""Lines in which budgets are counted; a room may be two steps below its budget."""
SUFFIXES = {".py", ".js", ".css", ".html"}
HEAD = """\
# Lines that each room of coordinator/ARCHITECTURE.md may have, and how many public types may have
# the same name. `poe budgets` lowers the numbers; tests/budgets.py says how one is raised.
"""

Budgets = dict[str, dict[str, int]]


# --- Counts ----------------------------------------------------------------------------------


def rooms_of(text: str) -> list[str]:
    """Rooms that the map's table of folders names, as paths from the root of the repository."""
    table = text.partition("\n## Folders\n\n")[2].partition("\n\n")[0]
    cells = re.findall(r"^\| \[?`([\w.]+)/?`", table, re.MULTILINE)
    return [cell if f"{cell}/" in PRODUCT else f"coordinator/{cell}" for cell in cells]


def lines_of(room: str, sources: Iterable[Source]) -> int:
    """Lines of a room's files that people write, as `wc` counts them."""
    held = [it for it in sources if it.path == room or it.path.startswith(f"{room}/")]
    return sum(it.text.count("\n") for it in held)


def public_types(source: Source) -> Iterator[tuple[int, str]]:
    """Line and name of the public classes and type aliases of a module; type variables are none."""
    for node in source.tree.body:
        match node:
            case ast.ClassDef(name=name):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                if re.match(r"(typing\.)?(TypeVar|TypeVarTuple|ParamSpec)\(", ast.unparse(value)):
                    continue
            case ast.AnnAssign(target=ast.Name(id=name)):
                pass
            case _:
                continue
        if re.match(r"[A-Z]\w*[a-z]", name):
            yield node.lineno, name


def shared_names(sources: Iterable[Source]) -> dict[str, list[str]]:
    """Names that more than one public type has, in their order, with the places of the types."""
    places = defaultdict(list)
    for source in sources:
        if source.path.endswith(".py"):
            for line, name in public_types(source):
                places[name].append(source.at(line, name))
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


# --- Rules -----------------------------------------------------------------------------------


def rooms_keep_their_budgets(budgets: Mapping[str, int], there: Mapping[str, int]) -> Iterator[str]:
    for room in budgets.keys() ^ there.keys():
        yield f"{FILE}:1: {room} is in one of this file and the map's table of folders: poe budgets"
    for room in budgets.keys() & there.keys():
        spare = budgets[room] - there[room]
        if spare < 0:
            yield (
                f"{FILE}:1: {room} has {there[room]} lines, {-spare} above its budget: shorten it, "
                "or raise the budget in a commit that says why"
            )
        elif spare > 2 * STEP:
            yield f"{FILE}:1: {room} is {spare} lines below its budget: poe budgets gives them back"


def names_are_not_shared(
    budgets: Mapping[str, int], there: Mapping[str, list[str]]
) -> Iterator[str]:
    for name, places in there.items():
        if len(places) > budgets.get(name, 1):
            yield f"{places[-1]} is the name of other public types too: {', '.join(places[:-1])}"
    for name, allowed in budgets.items():
        if allowed > len(there.get(name, ())):
            yield f"{FILE}:1: fewer types than {allowed} are called {name}: poe budgets"


def unexplained(before: Budgets, after: Budgets, messages: Iterable[str]) -> Iterator[str]:
    """Budgets that rose, of which no message of a commit speaks."""
    told = [message for message in messages if re.search("budget", message, re.IGNORECASE)]
    for part, budgets in after.items():
        for name, budget in budgets.items():
            if budget <= before.get(part, {}).get(name, 0):
                continue
            if not any(re.search(rf"\b{re.escape(name)}\b", message) for message in told):
                yield f"{FILE}:1: {name} was raised to {budget}, and no commit says why"


# --- The file --------------------------------------------------------------------------------


def sources() -> list[Source]:
    """The files of the product that people write, in the order of their paths."""
    files = sorted(file for top in PRODUCT for file in (ROOT / top).rglob("*"))
    paths = [it.relative_to(ROOT).as_posix() for it in files if it.suffix in SUFFIXES]
    return [Source(it, (ROOT / it).read_text()) for it in paths if not it.startswith(GENERATED)]


def present() -> tuple[dict[str, int], dict[str, list[str]]]:
    """Lines of the rooms that have files, and names that are shared, as they are now."""
    product = sources()
    lines = {room: lines_of(room, product) for room in rooms_of((ROOT / MAP).read_text())}
    return {room: count for room, count in lines.items() if count}, shared_names(product)


def lowered(budgets: Budgets, lines: Mapping[str, int], shared: Mapping[str, list[str]]) -> Budgets:
    """Budgets that fit; none rises. A room that the map has newly gets what it has.

    A new name that is shared gets nothing.
    """
    rounded = {room: -(-count // STEP) * STEP for room, count in lines.items()}
    rooms, names = budgets.get("lines", {}), budgets.get("shared_names", {})
    return {
        "lines": {room: min(rooms.get(room, count), count) for room, count in rounded.items()},
        "shared_names": {
            name: min(names[name], len(places)) for name, places in shared.items() if name in names
        },
    }


def written(budgets: Budgets) -> str:
    """The text of the file."""
    parts = [HEAD]
    for part, rows in budgets.items():
        parts.append(f"\n[{part}]\n")
        parts += [f'"{name}" = {number}\n' for name, number in rows.items()]
    return "".join(parts)


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.budgets")
    parser.add_argument("--against", metavar="COMMIT", help="budgets raised since this commit")
    against = parser.parse_args().against
    budgets = tomllib.loads((ROOT / FILE).read_text())
    if against is None:
        (ROOT / FILE).write_text(written(lowered(budgets, *present())))
        return 0
    base = _git("merge-base", against, "HEAD").strip()
    if not _git("ls-tree", base, str(FILE)):
        return 0
    before = tomllib.loads(_git("show", f"{base}:{FILE}"))
    messages = _git("log", "-z", "--format=%B", f"{base}..HEAD").split("\0")
    offences = list(unexplained(before, budgets, messages))
    print("\n".join(offences))
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
