"""Imports of `coordinator` before it has anything to do, and completion in real shells."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from coordinator.cli.main import COMMANDS
from tests.kit.patience import HANG_S

ROOT = Path(__file__).parents[3]
NOT_NEEDED = {"grpc", "google", "apsw", "asyncio", "structlog", "prometheus_client", "h11", "rich"}
ALLOWED = {
    "assignors", "cli", "core", "data_folder", "environment", "observe", "printable", "settings",
    "typed_json",
}  # fmt: skip
"""Parts of the project that help may import: `core` for the settings of groups alone, `observe` for
the rows that commands print."""
INSIDE = {"core.config", "core.limits", "core.setting", "observe.journal_rows", "observe.rows"}


IMPORTED = """
import json, sys
from coordinator.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
sys.stderr.write(json.dumps(sorted(sys.modules)))
"""
ACTIONS = {
    "groups": "describe",
    "cluster": "drain",
    "log": "dump",
    "token": "new",
}


def imported(*words: str, environment: dict[str, str] | None = None) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *words],
        env={**os.environ, **(environment or {})},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    return set(json.loads(done.stderr))


LINES = [
    *([], ["--version"], ["--help"], ["completion", "bash"]),
    *([name, "--help"] for name in COMMANDS),
    *([name, action, "--help"] for name, action in ACTIONS.items()),
]


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_help_completion_and_version_import_neither_grpc_nor_the_server(words):
    names = imported(*words)
    assert {name.split(".")[0] for name in names} & NOT_NEEDED == set()
    ours = {name.split(".")[1] for name in names if name.startswith("coordinator.")}
    assert ours <= ALLOWED
    inside = {
        name for name in names if name.startswith(("coordinator.core.", "coordinator.observe."))
    }
    assert inside <= {f"coordinator.{name}" for name in INSIDE}


# --- Completion ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> str:
    """A PATH on which `coordinator` is the one of this folder."""
    folder = tmp_path_factory.mktemp("bin")
    command = folder / "coordinator"
    command.write_text(
        f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -P -m coordinator "$@"\n'
    )
    command.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


CANDIDATES = [
    ("coordinator clu", {"cluster"}),
    ("coordinator groups delete-", {"delete-offsets"}),
    ("coordinator cluster describe --shar", {"--shards"}),
    ("coordinator health --output ", {"table", "json", "yaml"}),
    ("coordinator serve --log-level ", {"debug", "info", "warning", "error"}),
    ("coordinator config ", {"show", "check"}),
]


@pytest.fixture(scope="module")
def environment(path, tmp_path_factory) -> dict[str, str]:
    return {**os.environ, "PATH": path, "XDG_CONFIG_HOME": str(tmp_path_factory.mktemp("config"))}


def asked(shell: str, script: str, environment: dict[str, str]) -> str:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run(
        [shell, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


BASH = """
eval "$(coordinator completion bash)"
function=$(complete -p coordinator | sed 's/.*-F \\([^ ]*\\) .*/\\1/')
while IFS= read -r line; do
    COMP_LINE=$line COMP_POINT=${#line} COMP_TYPE=9
    $function coordinator "" ""
    echo "${COMPREPLY[@]}"
done <<'LINES'
%s
LINES
"""
FISH = """
coordinator completion fish | source
for line in %s
    complete -C $line | string replace -r '\\t.*' '' | string join ' '
end
"""
# Zsh completes on a terminal only: its own pseudo-terminal runs a second shell, in which Tab is
# pressed as soon as its prompt is there, and the line deleted. `compadd`, which is given what is
# shown, writes the candidates down.
ZSH = """
zmodload zsh/zpty
zpty shell zsh -f -i
type_in() { zpty -w shell "$1"; zpty -r -m shell told '*READY*'; }
type_in "PROMPT_EOL_MARK= PS1=REA''DY"
type_in 'autoload -Uz compinit && compinit -u -D; eval "$(coordinator completion zsh)"'
type_in 'compadd() {
    local -a it; builtin compadd -O it "$@"; print -r -- $it >> $FOUND; builtin compadd "$@"
}'
for line in %s; do
    type_in "$line"$'\\t\\x15print -r -- end >> $FOUND'
done
zpty -d shell
cat $FOUND
"""


def test_completion_in_bash(environment):
    lines = "\n".join(line for line, _ in CANDIDATES)
    offered = asked("bash", BASH % lines, environment).splitlines()
    assert [set(line.split()) for line in offered] == [wanted for _, wanted in CANDIDATES]


def test_completion_in_fish(environment):
    lines = " ".join(f"'{line}'" for line, _ in CANDIDATES)
    offered = asked("fish", FISH % lines, environment).splitlines()
    assert [set(line.split()) for line in offered] == [wanted for _, wanted in CANDIDATES]


def test_completion_in_zsh(environment, tmp_path):
    lines = " ".join(f"'{line}'" for line, _ in CANDIDATES)
    told = asked("zsh", ZSH % lines, {**environment, "FOUND": str(tmp_path / "found")})
    found = [set(part.split()) for part in told.split("end\n")[:-1]]
    assert found == [wanted for _, wanted in CANDIDATES]
