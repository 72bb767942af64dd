"""The dashboards, as code: `python deploy/grafana/generate.py` writes them beside itself.

    fleet.json       all nodes: groups, members, rebalances by cause, members that were lost
    group.json       one group of --metrics-groups: lag, members, its rebalances as annotations
    internals.json   inside of nodes: process, calls, log, timers, cluster

`--check` fails if what is there is not what this makes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from fleet import FLEET
from group import GROUP
from internals import INTERNALS
from model import as_json

FOLDER = Path(__file__).parent
DASHBOARDS = {"fleet.json": FLEET, "group.json": GROUP, "internals.json": INTERNALS}


def texts() -> dict[str, str]:
    """Name and text of each file."""
    every = tuple(DASHBOARDS.values())
    return {
        name: json.dumps(as_json(dashboard, every), indent=1) + "\n"
        for name, dashboard in DASHBOARDS.items()
    }


def main() -> int:
    stale = 0
    for name, text in texts().items():
        path = FOLDER / name
        if "--check" in sys.argv:
            stale += not path.exists() or path.read_text() != text
        else:
            path.write_text(text)
    return min(stale, 1)


if __name__ == "__main__":
    sys.exit(main())
