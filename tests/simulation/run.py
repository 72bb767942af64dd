"""Play many seeds, and say which of them breaks a claim.

python -m tests.simulation.run [HOW MANY] [FIRST SEED]
"""

from __future__ import annotations

import sys
import time

from tests.checkers.check import problems
from tests.simulation.world import World


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    first = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    began, broken = time.monotonic(), 0
    for seed in range(first, first + count):
        found = problems(*World(seed).run())
        if found:
            broken += 1
            print(f"seed {seed}: {found[0]}", flush=True)
    print(f"{count} seeds in {time.monotonic() - began:.0f} s, {broken} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
