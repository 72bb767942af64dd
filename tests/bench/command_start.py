"""CPU of starting the `coordinator` command beside that of `python -c "import argparse"`.

Processes run in turn, so that the figures of a round come from the same moment of the machine; the
goals are ratios within a round.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys

from tests.bench.compare import OURS
from tests.bench.figures import CannotMeasure, Figures, Goal
from tests.bench.servers import environment

ROUNDS = 31
CPU_MAX = 1.5
"""Highest acceptable CPU of `--version`, in that of Python with argparse."""

_ARGPARSE = "argparse"
# As the installed script does; `-m` has costs of its own.
_CODE = "import sys; from coordinator.cli.main import main; sys.exit(main())"
_COORDINATOR = ("-c", _CODE)
COMMANDS: dict[str, tuple[str, ...]] = {
    _ARGPARSE: ("-c", "import argparse"),
    "--version": (*_COORDINATOR, "--version"),
    "--help": (*_COORDINATOR, "--help"),
    "cluster describe --help": (*_COORDINATOR, "cluster", "describe", "--help"),
    "serve --help": (*_COORDINATOR, "serve", "--help"),
    "completion": _COORDINATOR,
}
_LINE = "coordinator cluster de"


def bench_command_start(rounds: int = ROUNDS) -> Figures:
    """CPU of help, version and completion, medians of fresh processes in turn.

    Raises:
        CannotMeasure: a command fails.
    """
    for name in COMMANDS:
        _cpu_s(name)  # Writes byte code.
    found: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name in COMMANDS:
            found[name].append(_cpu_s(name))
    figures: Figures = {
        'python -c "import argparse": CPU, ms': 1000 * statistics.median(found[_ARGPARSE])
    }
    for name, times in found.items():
        if name != _ARGPARSE:
            pairs = zip(times, found[_ARGPARSE], strict=True)
            ratio = statistics.median(ours / theirs for ours, theirs in pairs)
            has_goal = name == "--version"
            figures[f"{name}: CPU, ms"] = 1000 * statistics.median(times)
            figures[f"{name}: CPU, in that of argparse"] = (
                Goal(ratio, at_most=CPU_MAX) if has_goal else ratio
            )
    return figures


def _cpu_s(name: str) -> float:
    told = environment(OURS)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, *COMMANDS[name]]
    if name == "completion":  # The variables that a shell sets.
        told |= {"_ARGCOMPLETE": "1", "COMP_LINE": _LINE, "COMP_POINT": str(len(_LINE))}
        told |= {"_ARGCOMPLETE_STDOUT_FILENAME": os.devnull}
    done = subprocess.run(  # noqa: S603  # Our own program.
        command, env=told, capture_output=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise CannotMeasure(f"{' '.join(command)} failed: {done.stderr[-500:]!r}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
