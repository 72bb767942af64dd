"""Licences of what the image runs on, and what an audit's answer is worth."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re

import pytest
from packaging.licenses import canonicalize_license_expression
from packaging.requirements import Requirement

from tests.unit.deploy.image import ROOT
from tests.unit.deploy.test_locks import entries

ACCEPTED = {"MIT", "MIT-0", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0", "ISC", "PSF-2.0"}
"""Licences under which the image may be handed on with nothing more than their texts."""

SPELLINGS = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
    # "Any licence that the Open Source Initiative has approved": we take this one.
    "any-OSI": "MIT",
}
CLASSIFIERS = {"License :: OSI Approved :: MIT License": "MIT"}


def licence(metadata: importlib.metadata.PackageMetadata) -> str:
    """Licence of a package as an SPDX expression."""
    stated = metadata.get("License-Expression") or metadata.get("License") or ""
    if not stated:
        known = [
            CLASSIFIERS[classifier]
            for classifier in metadata.get_all("Classifier", [])
            if classifier in CLASSIFIERS
        ]
        stated = " AND ".join(known)
    return canonicalize_license_expression(SPELLINGS.get(stated, stated))


def is_accepted(expression: str) -> bool:
    """Whether one of its alternatives asks for accepted licences only."""
    alternatives = expression.replace("(", "").replace(")", "").split(" OR ")
    return any(set(alternative.split(" AND ")) <= ACCEPTED for alternative in alternatives)


LOCKED = [Requirement(entry.partition("--hash")[0]) for entry in entries("requirements.lock")]


@pytest.mark.parametrize("requirement", LOCKED, ids=lambda dependency: dependency.name)
def test_what_the_image_runs_on_may_be_handed_on(requirement):
    if requirement.marker and not requirement.marker.evaluate():
        pytest.skip(f"{requirement.name} is not for this platform")
    assert is_accepted(licence(importlib.metadata.metadata(requirement.name)))


@pytest.mark.parametrize("expression", ["GPL-3.0-only", "MIT AND GPL-2.0-only", "SSPL-1.0"])
def test_other_licences_are_not_accepted(expression):
    assert not is_accepted(expression)


@pytest.fixture(scope="module")
def audit():
    spec = importlib.util.spec_from_file_location("audit", ROOT / "deploy/audit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOUND = {"name": "a", "version": "1", "vulns": []}
WEAK = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"]}]}
UNKNOWN = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("dependencies", "status", "words"),
    [
        ([SOUND], 0, "Nothing is known against 1 packages"),
        ([SOUND, WEAK], 1, "b 2: PYSEC-1, fixed in 2.1"),
        ([UNKNOWN, WEAK], 1, "PYSEC-1"),
        ([SOUND, UNKNOWN], 3, "NOT AUDITED: 1 of 2 could not be looked up"),
        ([], 3, "NOT AUDITED"),
    ],
)
def test_an_audit_nobody_answered_is_no_clean_bill(audit, dependencies, status, words):
    verdict, lines = audit.judge(dependencies)
    assert verdict == status
    assert re.search(re.escape(words), "\n".join(lines))
