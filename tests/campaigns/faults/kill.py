"""Kill the coordinator at random, again and again, under load; then check every claim.

    python -m tests.campaigns.faults.kill [KILLS] [SEED]

200 kills by default; the tests kill a twentieth as often. Exit status: 0 if every claim holds.
History and dump stay behind if one does not.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.campaigns.faults.fleet import Fleet
from tests.integration.waiting import until
from tests.kit.patience import HANG_S
from tests.kit.serving import Process, free_port

SERVED_S_MAX = 1.0
"""A coordinator is killed after it has served for up to so long,"""
WHILE_STARTING = 0.15
"""or, this often, before it serves at all."""
STARTING_S_MAX = 0.4
WORK = {"committed": 20, "assigned": 1}
"""Fewest answers between two kills, for the claims are about work that is done. On a slow machine
the next kill waits for them."""


async def kill_again_and_again(folder: Path, kills: int, seed: int) -> tuple[Path, Path]:
    """The history of the clients, and the dump of what is left, as files in the folder."""
    dice = random.Random(seed)
    port = free_port()
    flags = (
        "--data-dir", str(folder / "data"), "--listen", f"127.0.0.1:{port}",
        "--metrics-listen", "", "--group-initial-rebalance-delay-ms", "50",
        "--group-min-session-timeout-ms", "100",
    )  # fmt: skip
    server = await asyncio.to_thread(Process, *flags)
    history = folder / "history.jsonl"
    async with Fleet([f"127.0.0.1:{port}"], dice, quiet=6, busy=6) as fleet:
        await fleet.settle()
        for number in range(1, kills + 1):
            await asyncio.sleep(SERVED_S_MAX * dice.random())
            await until(lambda n=number: has_worked(fleet, n), HANG_S)
            await asyncio.to_thread(server.kill)
            fleet.history.append({"op": "killed"})
            while dice.random() < WHILE_STARTING:
                server = Process(*flags, wait=False)
                await asyncio.sleep(STARTING_S_MAX * dice.random())
                await asyncio.to_thread(server.kill)
                fleet.history.append({"op": "killed_while_starting"})
            server = await asyncio.to_thread(Process, *flags)
            await fleet.read_back()
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(write_history, history, fleet.history)
    dump = folder / "dump.jsonl"
    with dump.open("w") as file:
        command = [sys.executable, "-m", "coordinator", "log", "dump", folder / "data"]
        await asyncio.to_thread(subprocess.run, command, stdout=file, check=True)
    return history, dump


def has_worked(fleet: Fleet, kills: int) -> bool:
    return all(fleet.answered[op] >= count * kills for op, count in WORK.items())


def write_history(path: Path, lines: list[dict]) -> None:
    """Write a history in the form that the checker reads."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def check(history: Path, dump: Path) -> subprocess.CompletedProcess[str]:
    """Run the offline checker, which shares no code with the coordinator."""
    command = [sys.executable, "-m", "tests.simulation.worlds.checkers.check", history, dump]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def main() -> int:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(10**6)
    folder = Path(tempfile.mkdtemp(prefix="kill-"))
    began = time.monotonic()
    verdict = check(*asyncio.run(kill_again_and_again(folder, kills, seed)))
    print(verdict.stdout, verdict.stderr, sep="")
    print(f"{kills} kills, seed {seed}, {time.monotonic() - began:.0f} s")
    if verdict.returncode:
        print(f"see {folder}")
    else:
        shutil.rmtree(folder)
    return verdict.returncode


if __name__ == "__main__":
    sys.exit(main())
