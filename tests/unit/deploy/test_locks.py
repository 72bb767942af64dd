"""The lock files pin all that the image runs on, with hashes, and name no index."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.unit.deploy.image import ROOT

DEPLOY = ROOT / "deploy"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
IMAGES_EXTRAS = ("fast", "jwt", "kafka-listener", "tls", "zookeeper")
"""Extras that a node may need; not those of members, queries or pictures."""

WANTED = {
    "requirements.lock": [
        *PYPROJECT["project"]["dependencies"],
        *[extra for name in IMAGES_EXTRAS for extra in EXTRAS.get(name, ())],
    ],
    "postgres.lock": EXTRAS["postgres"],
    "build.lock": PYPROJECT["build-system"]["requires"],
}
"""Requirements that each lock has to satisfy."""


def entries(name: str) -> list[str]:
    """A requirement each, with its hashes."""
    text = re.sub(r"^\s*#.*\n", "", (DEPLOY / name).read_text(), flags=re.MULTILINE)
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def pinned(name: str) -> dict[str, str]:
    """Versions by name."""
    requirements = [Requirement(entry.partition("--hash")[0]) for entry in entries(name)]
    return {
        canonicalize_name(requirement.name): str(requirement.specifier).removeprefix("==")
        for requirement in requirements
    }


@pytest.mark.parametrize("name", WANTED)
def test_everything_is_pinned_with_hashes(name):
    assert entries(name)
    for entry in entries(name):
        assert re.match(r"[\w.-]+==[\w.]+ ", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


@pytest.mark.parametrize("name", WANTED)
def test_no_index_is_named(name):
    assert "://" not in (DEPLOY / name).read_text()
    assert "--index" not in (DEPLOY / name).read_text()


@pytest.mark.parametrize("name", WANTED)
def test_a_lock_satisfies_what_the_project_asks_for(name):
    versions = pinned(name)
    for wanted in map(Requirement, WANTED[name]):
        version = versions.get(canonicalize_name(wanted.name))
        assert version, f"{wanted} is not in {name}: poe lock"
        assert wanted.specifier.contains(version), f"{wanted}, but {version} in {name}: poe lock"


def test_the_package_that_is_left_out_belongs_to_rows_that_nobody_reads():
    # `poe lock` leaves crc32c out, with which kio reads and writes rows of Kafka.
    assert "crc32c" not in pinned("requirements.lock")
    assert "kio" in pinned("requirements.lock")
    sources = (ROOT / "coordinator").rglob("*.py")
    assert not [str(path) for path in sources if "kio.records" in path.read_text()]
