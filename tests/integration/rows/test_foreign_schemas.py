"""Files that others read, against the schemas of those others."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_jsonschema import main
from click.testing import CliRunner

ROOT = Path(__file__).parents[3]
FILES = [
    ("vendor.compose-spec", "deploy/container/compose.yaml"),
    ("vendor.compose-spec", "deploy/container/postgres.yaml"),
    ("vendor.github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
    *[
        ("vendor.github-issue-forms", f".github/ISSUE_TEMPLATE/{name}.yml")
        for name in ("bug", "wish")
    ],
    ("vendor.github-workflows", ".github/workflows/ci.yml"),
]


def complaints(schema: str, path: Path) -> str:
    """Empty if the file is what the schema wants."""
    result = CliRunner().invoke(main, ["--builtin-schema", schema, str(path)])
    return "" if result.exit_code == 0 else result.output


@pytest.mark.parametrize(("schema", "path"), FILES, ids=lambda name: name.rpartition("/")[2])
def test_a_file_is_what_its_readers_expect(schema, path):
    assert complaints(schema, ROOT / path) == ""


def test_a_misspelt_key_is_found(tmp_path):
    path = tmp_path / "compose.yaml"
    good = (ROOT / "deploy/container/compose.yaml").read_text()
    path.write_text(good.replace("read_only:", "readonly:", 1))
    assert "readonly" in complaints("vendor.compose-spec", path)


def test_all_issue_forms_are_looked_at():
    forms = {path.name for path in (ROOT / ".github/ISSUE_TEMPLATE").iterdir()}
    assert forms == {Path(path).name for _, path in FILES if "ISSUE_TEMPLATE" in path}
