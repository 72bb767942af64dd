"""The member library uses nothing that only Unix has, unless it asks first.

These tests do not run on Windows: they read the code.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from coordinator.client import CannotEmbed, Worker
from coordinator.sources import open_source

CODE = Path(__file__).parents[3] / "coordinator"
MODULES = {"crypt", "fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
NAMES = {
    "os": {
        "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "WNOHANG", "chown", "fchmod", "fork", "forkpty",
        "getegid", "geteuid", "getgid", "getloadavg", "getpgid", "getuid", "killpg", "mkfifo",
        "nice", "register_at_fork", "sched_getaffinity", "setpgid", "setsid", "statvfs", "uname",
        "wait", "waitid",
    },
    "signal": {
        "SIGALRM", "SIGCHLD", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP", "SIGUSR1",
        "SIGUSR2", "alarm", "pause", "pthread_kill", "pthread_sigmask", "setitimer", "sigwait",
    },
    "socket": {"AF_UNIX", "socketpair"},
    "time": {"CLOCK_MONOTONIC", "clock_gettime", "tzset"},
}  # fmt: skip
METHODS = {
    "add_signal_handler",
    "remove_signal_handler",
    "create_unix_connection",
    "open_unix_connection",
}


NODES = ("coordinator/data_folder.py", "coordinator/client/embedding/")
MODULES_OF_NODES = ("coordinator.data_folder", "coordinator.client.embedding.")
"""What runs a node: `embedded` says that it needs Unix, and imports the rest afterwards."""


def member_library():
    """Python files that members and readers of rows run, without generated ones."""
    folders = (CODE / name for name in ("assignors", "client", "operator", "sources"))
    for file in [*CODE.glob("*.py"), *(file for one in folders for file in one.rglob("*.py"))]:
        path = str(file.relative_to(CODE.parent))
        if not path.startswith(NODES):
            yield path, file.read_text()


def unix_only(path, text):
    """Uses of what only Unix has, as offences; those that `hasattr` asks for are allowed."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names):
                used = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names):
                used = [f"{module}.{alias.name}" for alias in names]
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                used = [] if f'hasattr({owner}, "{name}")' in text else [f"{owner}.{name}"]
            case ast.Attribute(attr=name):
                used = [f".{name}"]
            case _:
                continue
        for each in used:
            top, _, name = each.partition(".")
            if top in MODULES or name in NAMES.get(top, ()) or name in METHODS:
                yield f"{path}:{node.lineno}: {each}"


def test_the_member_library_needs_no_unix():
    sources = list(member_library())
    assert len(sources) > 50
    assert [offence for source in sources for offence in unix_only(*source)] == []


@pytest.mark.parametrize(
    "text",
    [
        "import fcntl",
        "from os import fork",
        "import signal\nsignal.SIGKILL",
        "loop.add_signal_handler(2, stop)",
    ],
)
def test_the_search_finds_what_only_unix_has(text):
    assert len(list(unix_only("coordinator/client/x.py", text))) == 1


def test_what_is_asked_for_first_is_allowed():
    text = 'import os\nif hasattr(os, "O_DIRECTORY"):\n    os.O_DIRECTORY\n'
    assert list(unix_only("coordinator/client/x.py", text)) == []


def test_without_unix_a_worker_that_is_to_run_a_node_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    for name in [name for name in sys.modules if name.startswith(MODULES_OF_NODES)]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(CannotEmbed, match="Unix alone"):
        Worker("sqlite:///jobs", "g", {"t": 1})


def test_a_drives_letter_stands_behind_a_format():
    with pytest.raises(ValueError, match="begins with 'C'"):
        open_source("C:/logs/flights")
    pytest.importorskip("pyarrow", reason="logs of files need it")
    assert open_source("arrow:C:/logs/flights").topic == "C:/logs/flights"
