"""Each wheel of a release imports what is in it, or what it requires."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tidy import Source, imported_modules
from tests.wheels import ROOT, SERVER, build_hooks, code_of_wheels

HOOKS = build_hooks()
PLAIN = HOOKS.project_of(ROOT)
PARTS = {part["project"]["name"]: part for part in HOOKS.parts()}
WHEELS = [*PARTS, SERVER]
PROVIDERS = importlib.metadata.packages_distributions()

ELSEWHERE = {"coordinator/testing/__init__.py"}
"""Files that name the server's modules, which are imported where there is a server."""

IF_INSTALLED = {
    "consumer-group-member": {"opentelemetry", "prometheus_client"},
    "consumer-group-spark": {"fsspec"},
    SERVER: {"mypy_extensions", "pytest"},
}
"""Packages that are imported if they are there, or for types alone; pytest loads its plugin."""

FOR_CHECKOUTS = {"demo", "dev", "docs", "fuzz", "test"}
"""Extras that no wheel of a release needs."""


def requirements(wheel: str) -> list[str]:
    """Requirements of a wheel in a release, those of its extras too."""
    if wheel == SERVER:
        fields, ours = PLAIN["project"], HOOKS.parts_of_the_server("1")
    else:
        own = PARTS[wheel]["tool"]["hatch"]["metadata"]["hooks"]["custom"]
        fields = HOOKS.shared_metadata(PLAIN["project"], {"name": wheel, "version": "1"}, own)
        ours = []
    extras = fields.get("optional-dependencies", {})
    optional = [text for name in extras.keys() - FOR_CHECKOUTS for text in extras[name]]
    return [*fields["dependencies"], *ours, *optional]


def required(wheel: str) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements(wheel)}


def always_required(wheel: str) -> set[str]:
    """Wheels of ours that are there wherever a wheel is, itself among them."""
    wanted = [text for text in requirements(wheel) if "extra ==" not in text]
    return {wheel} | {Requirement(text).name for text in wanted} & set(WHEELS)


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


MODULES = {
    module_of(file): wheel for wheel, files in code_of_wheels().items() for file in files
}  # fmt: skip


def loaded_by(name: str) -> list[str]:
    """The module that an imported name is, or is in, and its packages."""
    parts = name.split(".")
    above = [".".join(parts[: count + 1]) for count in range(len(parts))]
    return [module for module in above if module in MODULES]


def lacking(wheel: str, source: Source) -> list[str]:
    """Imports of a file that are not there where its wheel is."""
    ours, theirs, may_lack = always_required(wheel), required(wheel), IF_INSTALLED.get(wheel, set())
    found = []
    for line, name in imported_modules(source):
        top = name.partition(".")[0]
        if top in {"coordinator", "timer"}:
            is_there = source.path in ELSEWHERE or {MODULES[it] for it in loaded_by(name)} <= ours
        elif top in sys.stdlib_module_names or top in may_lack:
            is_there = True
        else:
            is_there = any(canonicalize_name(it) in theirs for it in PROVIDERS.get(top, [top]))
        if not is_there:
            found.append(source.at(line, f"{wheel} does not require {name}"))
    return found


@pytest.mark.parametrize("wheel", WHEELS)
def test_files_import_what_their_wheel_holds_or_requires(wheel):
    files = code_of_wheels()[wheel]
    assert len(files) > 10
    sources = [Source(str(file.relative_to(ROOT)), file.read_text()) for file in files]
    assert [each for source in sources for each in lacking(wheel, source)] == []


@pytest.mark.parametrize(
    ("wheel", "statement", "is_there"),
    [
        ("consumer-group-member", "from coordinator.core import ids", False),
        ("consumer-group-member", "import timer", False),
        ("consumer-group-member", "def f(): import pyarrow", False),
        ("consumer-group-member", "import coordinator.operator.health, grpc_health, json", True),
        ("consumer-group-spark", "from coordinator.client import Member", True),
        ("consumer-group-spark", "import pyspark, pyarrow", True),
        ("consumer-group-spark", "import rich", False),
        ("consumer-group-conformance", "from coordinator.testing import VirtualGroup", True),
        ("consumer-group-conformance", "import coordinator.testing.group", False),
        (SERVER, "from coordinator.sources import open_source", False),
        (SERVER, "import coordinator.testing.conformance.wire", False),
        (SERVER, "import coordinator.client, apsw, kio", True),
        (SERVER, "import hypothesis", False),
    ],
)
def test_an_import_of_what_is_not_required_is_found(wheel, statement, is_there):
    assert (lacking(wheel, Source("coordinator/x.py", statement)) == []) == is_there


def test_what_a_wheel_requires_is_imported_in_it():
    for wheel, part in PARTS.items():
        wanted = set(part["tool"]["hatch"]["metadata"]["hooks"]["custom"]["requires"])
        used = set()
        for file in code_of_wheels()[wheel]:
            for _, name in imported_modules(Source(str(file.relative_to(ROOT)), file.read_text())):
                used |= {MODULES[module] for module in loaded_by(name)}
                used |= set(map(canonicalize_name, PROVIDERS.get(name.partition(".")[0], ())))
        assert wanted <= used


def test_all_that_a_wheel_names_is_there():
    paths = [path for part in PARTS.values() for path in HOOKS.files_of(part)]
    assert len(paths) == len(set(paths))
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_wheels_require_each_other_in_their_own_version():
    assert "consumer-group-spark==1; extra == 'sql'" in HOOKS.parts_of_the_server("1")
    assert "consumer-group-member==1" in HOOKS.parts_of_the_server("1")
    assert "consumer-group-member==1" in requirements("consumer-group-spark")
