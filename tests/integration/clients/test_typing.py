"""Pyright's judgement of users' code. Mypy judges the same files with everything else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("basedpyright", reason="basedpyright is not installed")
ROOT = Path(__file__).parents[3]
TYPING = ROOT / "tests/tools/typing"


def judged(project: Path) -> list[str]:
    command = [sys.executable, "-m", "basedpyright", "-p", str(project), "--outputjson"]
    command += ["--pythonpath", sys.executable]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(result.stdout)
    assert report["summary"]["filesAnalyzed"] > 0
    return [f"{d['file']}: {d['message']}" for d in report["generalDiagnostics"]]


def test_users_code_is_right_and_wrong_where_it_says_so():
    """An unneeded `type: ignore` is an error too, so each marks a mistake that pyright finds."""
    assert judged(TYPING / "pyrightconfig.json") == []


def test_the_judge_finds_mistakes(tmp_path):
    wrong = (TYPING / "worker.py").read_text().replace("# type: ignore", "# not:")
    (tmp_path / "wrong.py").write_text(wrong)
    settings = json.loads((TYPING / "pyrightconfig.json").read_text())
    settings["extraPaths"] = [str(ROOT)]
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    assert len(judged(tmp_path / "pyrightconfig.json")) >= wrong.count("# not:")
