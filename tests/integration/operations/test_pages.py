"""Pages work as they are printed: every program and command of them is run, in order."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests.integration.operations.shell import Shell, clone_this, play_page
from tests.kit.documents import ROOT, Block, Command, blocks, commands
from tests.kit.linked_environment import NO_NETWORK

README = ROOT / "README.md"
DOCS = ROOT / "deploy/docs"
ELSEWHERE = ("testing", "another-language")
"""Pages with tests of their own: test_testing_page.py, test_javascript_member.py."""
EXACTLY_ONCE = DOCS / "exactly-once.md"
PLAYED = [
    DOCS / "sessions.md",
    EXACTLY_ONCE,
    *sorted(page for page in (DOCS / "how-to").glob("*.md") if page.stem not in ELSEWHERE),
]
# tests/integration/spark/test_tutorial.py plays the one on Spark.
TUTORIALS = (DOCS / "tutorial.md", DOCS / "tutorial-spark.md")
EXAMPLE = "deploy/examples/worker.py"
RUN_ELSEWHERE = {
    "deploy/demo": "some minutes and Spark; tests/integration/spark runs its parts",
    "tests/run": "it runs this test",
}
"""Commands of the README's tables."""
ENVIRONMENT = {
    # `coordinator` and `python` are those of the interpreter that runs the tests.
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
}


def programs(page: Path) -> list[Block]:
    """The programs that a page has its reader save and run."""
    found = blocks(page, "python")
    if page == EXACTLY_ONCE:
        # Its other blocks need a Spark; tests/kit/sinks.py runs numbered_files.py.
        return [item for item in found if item.name not in {"", "numbered_files.py"}]
    return found


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with Shell(tmp_path, ENVIRONMENT) as shell:
        yield shell


def test_the_tutorial_works_as_printed(shell, tmp_path):
    play_page(DOCS / "tutorial.md", shell, tmp_path)
    said = next(line for line in shell.output().splitlines() if "orders were shipped" in line)
    twice = int(said.rpartition(", ")[2].partition(" ")[0])
    assert twice <= 2, "one for each partition of the worker that was killed"
    assert "Traceback" not in shell.output()


@pytest.mark.parametrize("page", PLAYED, ids=lambda page: page.stem)
def test_a_page_works_as_printed(page, shell, tmp_path):
    shell.run("export COORDINATOR_GROUP_INITIAL_REBALANCE_DELAY_MS=500")
    shell.check(Command("coordinator serve 2> coordinator.log &"))
    shell.check(Command("coordinator health --wait 30"))
    play_page(page, shell, tmp_path, run_snippets=page != EXACTLY_ONCE)


@pytest.mark.parametrize("page", [*TUTORIALS, *PLAYED], ids=lambda page: page.stem)
def test_every_program_of_a_page_is_run_by_one_of_its_commands(page):
    text = " ".join(block.text for block in blocks(page, "console"))
    for block in programs(page):
        assert block.name, block.text
        assert f"python {block.name}" in text


def test_the_programs_of_the_pages_are_typed(tmp_path):
    for page in (README, *TUTORIALS, *PLAYED):
        for block in programs(page):
            # Two pages have a worker.py.
            name = f"{page.stem.replace('-', '_')}_{Path(block.name).name}"
            (tmp_path / name).write_text(block.text)
    command = [sys.executable, "-m", "mypy", tmp_path]  # Strict, by pyproject.toml.
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_manifest_is_what_kubernetes_takes():
    (block,) = blocks(DOCS / "how-to/kubernetes.md", "yaml")
    kubernetes_validate.validate(yaml.safe_load(block.text), "1.31", strict=True)


def test_the_programs_of_the_timers_page_print_what_it_says(tmp_path):
    program = "\n".join(block.text for block in blocks(ROOT / "timer/README.md", "python"))
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    tea, soon, answer = done.stdout.splitlines()
    assert (tea, answer) == ("tea at 240000", "answer: ['apple', 'pear']")
    assert soon.startswith("soon at ")


PAGES = subprocess.run(
    ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False
).stdout.split()


EXCERPTS = {"deploy/spark/flights/README.md"}  # tests/unit/flights finds its lines in files.


@pytest.mark.parametrize(
    "page", [path for path in PAGES if path not in EXCERPTS and blocks(ROOT / path, "python")]
)
def test_what_a_page_imports_is_there(page):
    """Fragments that need a Spark, a Kafka or another machine are not run; their names exist."""
    for block in blocks(ROOT / page, "python"):
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith(
                ("coordinator", "timer")
            ):
                module = pytest.importorskip(node.module)
                missing = [name.name for name in node.names if not hasattr(module, name.name)]
                assert missing == [], node.module


# --- README ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clone_this(tmp_path_factory.mktemp("clone") / "coordinator")


def test_the_readme_works_as_printed_on_a_fresh_clone(clone):
    lines = [command for block in blocks(README, "console") for command in commands(block.text)]
    install = [command for command in lines if is_installation(command)]
    assert lines[: len(install)] == install, "first of all it is installed"
    for command in install:
        # In the network of this machine: packages come from an index.
        done = subprocess.run(
            ["bash", "-c", command.text], cwd=clone, capture_output=True, text=True, check=False
        )
        if done.returncode != 0 and any(sign in done.stderr for sign in NO_NETWORK):
            pytest.skip(f"no index answers: {done.stderr.splitlines()[-1]}")
        assert done.returncode == 0, f"$ {command.text}\n{done.stdout}\n{done.stderr}"
    before = changed_in(clone)
    with Shell(clone) as shell:
        for command in lines[len(install) :]:
            shell.check(command)
        assert "Traceback" not in shell.output()
        begun = re.findall(r"^invoices-\d+ from \d+$", shell.output(), re.MULTILINE)
        assert len(begun) >= 12 + 6, "the survivor went on with six"
    assert changed_in(clone) == before, "everything that the commands leave behind is ignored"


def changed_in(clone: Path) -> str:
    command = ["git", "-C", str(clone), "status", "--porcelain"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def is_installation(command: Command) -> bool:
    return " -m venv " in command.text or "pip install" in command.text


def test_the_worker_of_the_readme_is_the_one_in_the_repository():
    assert blocks(README, "python") == [Block("python", (ROOT / EXAMPLE).read_text())]


def test_every_command_of_the_readmes_table_has_a_test_of_its_own():
    rows = [line for line in README.read_text().splitlines() if line.startswith("| `")]
    assert {row.split("`")[1] for row in rows} == set(RUN_ELSEWHERE)
    for name in RUN_ELSEWHERE:
        assert os.access(ROOT / name, os.X_OK)
