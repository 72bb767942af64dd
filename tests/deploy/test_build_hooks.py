"""The description that package indexes show: its links lead into the public repository."""

from __future__ import annotations

import importlib.util
import tomllib

import pytest

from tests.deploy.image import ROOT

URL = "https://example.org/it"


@pytest.fixture(scope="module")
def hooks():
    spec = importlib.util.spec_from_file_location("build_hooks", ROOT / "deploy/build_hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "with_url", "without"),
    [
        ("[a](b/c.md)", f"[a]({URL}/blob/HEAD/b/c.md)", "a"),
        ("[`a/`](b/c.md#d), [e](f)", f"[`a/`]({URL}/blob/HEAD/b/c.md#d), [e]({URL}/blob/HEAD/f)",
         "`a/`, e"),
        ("![a](b.png)", f"![a]({URL}/raw/HEAD/b.png)", "a"),
        ("[a](https://x.org/y)", "[a](https://x.org/y)", "[a](https://x.org/y)"),
        ("[a](#b) [c](mailto:d@e.f)", "[a](#b) [c](mailto:d@e.f)", "[a](#b) [c](mailto:d@e.f)"),
        ("```\n[a](b)\n```\n[a](b)", f"```\n[a](b)\n```\n[a]({URL}/blob/HEAD/b)",
         "```\n[a](b)\n```\na"),
    ],
)  # fmt: skip
def test_links_lead_into_the_repository_or_nowhere(hooks, text, with_url, without):
    assert hooks.with_absolute_links(text, URL) == with_url
    assert hooks.with_absolute_links(text, "") == without


def test_the_server_leaves_out_what_the_member_holds(hooks):
    patterns = hooks.files_of_member(ROOT)
    assert {"/coordinator/__init__.py", "/coordinator/client", "/coordinator/v1"} <= set(patterns)
    assert [pattern for pattern in patterns if not (ROOT / pattern[1:]).exists()] == []


def test_the_member_holds_the_client_and_the_layers_that_it_may_import(hooks):
    held = {pattern.split("/")[2].removesuffix(".py") for pattern in hooks.files_of_member(ROOT)}
    assert held == {
        *(
            "__init__",
            "py.typed",
            "assignors",
            "client",
            "commit_metadata",
            "dial",
            "environment",
            "handshake",
            "operator",
            "sources",
            "v1",
        )
    }


def test_the_extras_of_both_ask_for_the_same():
    root = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    member = tomllib.loads((ROOT / "deploy/member/pyproject.toml").read_text())["project"]
    assert member["classifiers"] == root["classifiers"]
    assert member["requires-python"] == root["requires-python"]
    for name, wanted in member["optional-dependencies"].items():
        theirs = root["optional-dependencies"][name]
        assert [text.replace(member["name"], root["name"]) for text in wanted] == theirs
