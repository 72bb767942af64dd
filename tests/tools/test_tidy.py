"""Rules of the house that neither ruff nor an import contract can check."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[2]
ROOT_NAMES = set(
    "pyproject.toml protos coordinator timer tests deploy README.md LICENSE CHANGELOG.md "
    ".gitignore .gitattributes .dockerignore .editorconfig .github .ci".split()
)
# Spelled in pieces, so that this file does not offend itself.
MACHINE = re.compile(r"(?<![\w.~-])/(?:work|root|home/\w+|opt/dev)/|\.\./" + "shared/")
VAGUE = re.compile(r"(?:^|_)(?:utils?|helpers?|managers?|misc)$")
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
CLASS = re.compile(r"^class ([A-Z]\w*)", re.MULTILINE)
FIELD = re.compile(r"(?:(?<=\.[ \n])|(?<=\n\n))([a-z][a-z0-9_]*)(?:, [a-z_]+)*: ")
GENERATED = re.compile(r"^coordinator/(?:durable/)?v1/|/etcd_api/")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def repository_paths() -> list[str]:
    """Files that git tracks or would track."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git, or no clone: the files of the repository are not known")
    return [name for name in answer.stdout.split("\0") if name and (ROOT / name).is_file()]


def dead_links(path: str, text: str, paths: Collection[str]) -> Iterator[str]:
    """Links of a Markdown file to files or folders that are not among `paths`."""
    known = {*paths, *(str(above) for each in paths for above in PurePosixPath(each).parents)}
    for match in LINK.finditer(CODE.sub("", text)):
        target = (match[1] or match[2]).partition("#")[0]
        if target and not re.match(r"[a-z][a-z0-9+.-]*:", target):
            start = ROOT if target.startswith("/") else (ROOT / path).parent
            found = Path(f"{start}/{target}").resolve()
            if not found.is_relative_to(ROOT) or found.relative_to(ROOT).as_posix() not in known:
                yield f"{path}: the link to {target} leads nowhere"


def machine_paths(path: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), start=1):
        if found := MACHINE.search(line):
            yield f"{path}:{number}: names a path of one machine: {found[0]}"


def unknown_fields(source: str) -> Iterator[str]:
    """Fields that docstrings of dataclasses describe, `name: …`, and their classes have not."""
    for kind in ast.walk(ast.parse(source)):
        if not isinstance(kind, ast.ClassDef) or kind.name == "StreamOptions":  # Spark's names.
            continue
        if not any("dataclass" in ast.unparse(decorator) for decorator in kind.decorator_list):
            continue
        names = {
            node.target.id if isinstance(node, ast.AnnAssign) else node.name
            for node in kind.body
            if isinstance(node, (ast.AnnAssign, ast.FunctionDef))
        }
        for field in FIELD.findall(ast.get_docstring(kind) or ""):
            if field not in names and not kind.bases:
                yield f"{kind.name}: {field}"


def names_of_several(paths: Collection[str]) -> set[str]:
    """Names of public classes of the product that stand in more than one file."""
    files = [path for path in paths if path.endswith(".py") and not GENERATED.search(path)]
    names = Counter(
        name
        for path in files
        if path.startswith(("coordinator/", "timer/"))
        for name in CLASS.findall((ROOT / path).read_text(encoding="utf-8"))
    )
    return {name for name, number in names.items() if number > 1}


def bad_names(path: str) -> Iterator[str]:
    parts = PurePosixPath(path).parts
    yield from (
        f"{path}: {part} does not say what is inside"
        for part in parts
        if VAGUE.search(part.partition(".")[0].lower())
    )
    if parts[0] not in ROOT_NAMES:
        yield f"{path}: does not belong into the root"


def test_the_repository_keeps_its_rules():
    paths = repository_paths()
    assert "coordinator/__init__.py" in paths
    found = [offence for path in paths for offence in bad_names(path)]
    for path in paths:
        try:
            text = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # A picture.
        found += machine_paths(path, text)
        if path.endswith(".md"):
            found += dead_links(path, text, paths)
    assert found == []


def test_the_rules_object():
    paths = ["coordinator/a.md", "deploy/b.md"]
    text = "[x](b.md) [y](../deploy/b.md) [z](/deploy) [w](https://e.org/x) `[v](c.md)`"
    assert [*dead_links(paths[0], text, paths)] == [
        "coordinator/a.md: the link to b.md leads nowhere"
    ]
    assert [*machine_paths("x.py", "a\nopen('/wo" + "rk/main')")]
    assert [*bad_names("coordinator/time_utils.py")]
    assert [*bad_names("notes/x.md")]


def test_a_public_class_has_a_name_of_its_own():
    assert names_of_several(repository_paths()) == set()


def test_docstrings_of_dataclasses_describe_fields_that_there_are():
    found = [
        (path, unknown)
        for path in repository_paths()
        if path.startswith("coordinator/") and path.endswith(".py") and not GENERATED.search(path)
        for unknown in unknown_fields((ROOT / path).read_text())
    ]
    assert found == []
    stale = '@dataclass\nclass Box:\n    """A box.\n\n    told: when.\n    """\n\n    sent: int\n'
    assert [*unknown_fields(stale)] == ["Box: told"]
