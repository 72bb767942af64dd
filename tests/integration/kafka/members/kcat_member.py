"""A member with kcat. It prints its assignments for people; this program makes lines of them.

kcat commits by itself, offsets of rows that it has read, so an order to commit is refused.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from typing import IO

from member_lines import Orders, Ownership, option

CHANGE = re.compile(r"% Group \S+ rebalanced \(memberid \S+\): (assigned|revoked): ?(.*)")
PARTITION = re.compile(r"(\S+) \[(\d+)\]")


def main() -> None:
    """Run kcat until told to leave."""
    owned, orders = Ownership(), Orders()
    settings = {
        "client.id": option("client_id"),
        "session.timeout.ms": option("session_ms"),
        "max.poll.interval.ms": option("rebalance_ms"),
        "heartbeat.interval.ms": 300,
        "partition.assignment.strategy": option("assignor"),
        "topic.metadata.refresh.interval.ms": 2_000,
        "enable.auto.commit": "false",
    }
    if instance := option("instance"):
        settings["group.instance.id"] = instance
    flags = [flag for name, value in settings.items() for flag in ("-X", f"{name}={value}")]
    command = ["kcat", "-b", option("bootstrap"), *flags, "-G", option("group"), *option("topics")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as kcat:
        threading.Thread(target=_read, args=(kcat.stderr, owned), daemon=True).start()
        while kcat.poll() is None:
            match orders.wait(0.2):
                case "leave":
                    kcat.send_signal(signal.SIGINT)
                case "commit":
                    sys.exit("kcat commits what it has read, and nothing else")


def _read(stream: IO[str], owned: Ownership) -> None:
    for line in stream:
        sys.stderr.write(line)
        if change := CHANGE.match(line):
            partitions = [(topic, int(number)) for topic, number in PARTITION.findall(change[2])]
            owned.replace(partitions if change[1] == "assigned" else [])


if __name__ == "__main__":
    main()
