"""CPU and memory of importing the member library, on top of those of `import grpc`.

A fresh process imports grpc and then the library, so that each pair of figures comes from the same
moment of the machine; the goals are ratios within such a pair.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from dataclasses import dataclass

from tests.bench.compare import OURS
from tests.bench.figures import CannotMeasure, Figures, Goal
from tests.bench.servers import environment

ROUNDS = 31
CPU_MAX = 0.5
"""Highest acceptable CPU of the import, in that of `import grpc`."""
MEMORY_MAX_MIB = 4.0

IMPORTS = {
    "import coordinator.client": "import coordinator.client",
    "all its names": "from coordinator.client import *",
    "a member made": "from coordinator.client import Member\nMember('127.0.0.1:1', 'g', {'t': 1})",
}
"""Statements that are measured. The last one is what a worker pays before it connects."""

_CODE = """
import json, os, sys, time

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20

begin, empty = time.process_time(), resident()
import grpc
middle, before = time.process_time(), resident()
loaded = len(sys.modules)
exec(sys.argv[1])
end, after = time.process_time(), resident()
print(json.dumps([middle - begin, end - middle, before - empty, after - before,
                  len(sys.modules) - loaded]))
"""


@dataclass(frozen=True, slots=True)
class Import:
    """One process: CPU in seconds and memory in MiB of grpc, and of what is imported after it."""

    grpc_s: float
    ours_s: float
    grpc_mib: float
    ours_mib: float
    modules: int


def bench_imports(rounds: int = ROUNDS) -> Figures:
    """CPU and memory of the library's import beside grpc's, medians of fresh processes in turn.

    Raises:
        CannotMeasure: the library cannot be imported, or the system has no /proc.
    """
    for statement in IMPORTS.values():
        _measured(statement)  # Writes byte code.
    found: dict[str, list[Import]] = {name: [] for name in IMPORTS}
    for _ in range(rounds):
        for name, statement in IMPORTS.items():
            found[name].append(_measured(statement))
    every = [each for some in found.values() for each in some]
    figures: Figures = {
        "import grpc: CPU, ms": 1000 * statistics.median(each.grpc_s for each in every),
        "import grpc: MiB": statistics.median(each.grpc_mib for each in every),
    }
    for name, some in found.items():
        share = statistics.median(each.ours_s / each.grpc_s for each in some)
        memory = statistics.median(each.ours_mib for each in some)
        has_goal = name == "import coordinator.client"
        figures |= {
            f"{name}: CPU, ms": 1000 * statistics.median(each.ours_s for each in some),
            f"{name}: CPU, in import grpc": Goal(share, at_most=CPU_MAX) if has_goal else share,
            f"{name}: MiB": Goal(memory, at_most=MEMORY_MAX_MIB) if has_goal else memory,
            f"{name}: modules": some[0].modules,
        }
    return figures


def _measured(statement: str) -> Import:
    answer = subprocess.run(  # noqa: S603  # Our own program.
        [sys.executable, "-c", _CODE, statement],
        env=environment(OURS),
        capture_output=True,
        text=True,
        check=False,
    )
    if answer.returncode != 0:
        raise CannotMeasure(f"{statement!r} failed: {answer.stderr[-500:]}")
    return Import(*json.loads(answer.stdout))
