"""Session members of ten groups that note how long each of their heartbeats took.

    python -m tests.bench.session_probe ADDRESS

Prints `ready` once they are members, and at the end of its input when each heartbeat was sent and
how long its acknowledgement took: pairs of monotonic seconds, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys

from tests.bench.session_members import Member, attach_all

MEMBERS = 100
GROUPS = 10
EVERY_S = 0.1


async def _main(address: str) -> None:
    members = [
        Member(address, n, group=f"other-{n % GROUPS}", partitions=MEMBERS, every_s=EVERY_S)
        for n in range(MEMBERS)
    ]
    await attach_all(members)
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    heard = [pair for each in members for pair in zip(each.sent_s, each.late_s, strict=False)]
    print(json.dumps(heard))


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1]))
