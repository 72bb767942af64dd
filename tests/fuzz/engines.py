"""Engines that run a target: atheris, guided by coverage, or the mutator of `mutate.py`.

Either runs in a process of its own, since a hostile input may end it.
"""

from __future__ import annotations

import importlib.util
import resource
import sys
import time
import traceback
from pathlib import Path

from tests.fuzz import corpus
from tests.fuzz.mutate import mutations
from tests.fuzz.targets import load

INSTRUMENTED = ["coordinator"]
"""Packages whose branches count as coverage."""
MEMORY_MIB = 2_048
SECONDS_AN_INPUT = 20


def has_atheris() -> bool:
    return importlib.util.find_spec("atheris") is not None


def run_atheris(name: str, arguments: list[str]) -> None:
    """Hand the process to libFuzzer, which ends it. It takes libFuzzer's own arguments."""
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED, enable_loader_override=False):
        it = load(name)
    limits = [f"-rss_limit_mb={MEMORY_MIB}", f"-timeout={SECONDS_AN_INPUT}"]
    atheris.Setup([sys.argv[0], *limits, *arguments], it.target)
    atheris.Fuzz()


def run_mutator(name: str, executions: int, seed: int, crashes: Path) -> None:
    """Run blind, and print the counts in libFuzzer's words."""
    it = load(name)
    seeds = [*it.seeds(), *corpus.read(name)]
    started = time.monotonic()
    done = 0
    for data, _ in zip(mutations(seeds, seed), range(executions), strict=False):
        done += 1
        try:
            it.target(data)
        except Exception:  # noqa: BLE001  # Whatever it is, it is kept.
            traceback.print_exc()
            (crashes / f"crash-{done}").write_bytes(data)
            sys.exit(77)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    assert peak_mib < MEMORY_MIB, f"{peak_mib} MiB"
    print(f"Done {done} runs in {int(time.monotonic() - started)} second(s)", file=sys.stderr)
