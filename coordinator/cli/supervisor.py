"""`coordinator serve --nodes N`: one process per node, and this process as their supervisor.

Each child is an ordinary `coordinator serve` with flags of its own, and is restarted when it dies.
Its standard input is a pipe from this process: when the supervisor is gone, however it ended, the
pipe closes and the children stop too.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from coordinator.cli.output import WRONG_USAGE
from coordinator.cli.ports import ListenAddress, addresses, problems
from coordinator.observe.logs import configure
from coordinator.settings import InvalidSetting, Settings
from coordinator.settings.sections import NODE_PORTS
from coordinator.storage.log import CannotOpen, Damaged
from coordinator.storage.shares import check_folder, share_folder

CANNOT_START = 1
LAST_PORT = 65_535
BACK_OFF_S, MOST_BACK_OFF_S = 0.2, 5.0
LONG_ENOUGH_S = 10.0
"""A node that ran for at least this long is restarted with the shortest back-off."""


def flags_of(settings: Settings, number: int) -> list[str]:
    """Flags that differ between the nodes, of node `number` (from 1).

    Raises:
        InvalidSetting: a port is 0, so the ports of the other nodes cannot be derived, or
            theirs would be too high.
    """
    serving, storage, cluster = settings.serving, settings.storage, settings.cluster
    shift = (number - 1) * NODE_PORTS
    flags = {"nodes": "1"}
    values = settings.values()
    for name in ("listen", "metrics_listen", "console_listen", "kafka_listen", "kafka_advertise"):
        host, _, port = str(values[name]).rpartition(":")
        if port == "0":
            raise InvalidSetting(
                f"{name} has port 0; with several nodes give the port of the first node"
            )
        if port and int(port) + shift > LAST_PORT:
            raise InvalidSetting(
                f"{name} of node {number} would have port {int(port) + shift}: ports of each "
                f"further node are {NODE_PORTS} higher, and end at {LAST_PORT}"
            )
        if port:
            flags[name] = f"{host}:{int(port) + shift}"
    if serving.advertised_port:
        flags["advertised_port"] = str(serving.advertised_port + shift)
    if storage.shared_store is None:
        flags["share"] = f"{number}/{cluster.nodes}"
        flags["store"] = storage.store
        flags["data_dir"] = str(share_folder(Path(storage.data_dir), (number, cluster.nodes)))
    elif cluster.node_id:
        flags["node_id"] = str(cluster.node_id + number - 1)
    return [
        part for name, value in flags.items() for part in ("--" + name.replace("_", "-"), value)
    ]


def supervise(settings: Settings, arguments: Sequence[str]) -> int:
    """Run all nodes until SIGTERM or SIGINT, and return the exit status.

    Args:
        arguments: command line of this process, passed on to every node.
    """
    return asyncio.run(_Supervisor(settings, arguments).run())


class _Supervisor:
    def __init__(self, settings: Settings, arguments: Sequence[str]) -> None:
        self._settings = settings
        self._arguments = arguments
        self._logger = configure(settings.observe.log_format, settings.observe.log_level)
        self._stopping = asyncio.Event()
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._status = 0

    async def run(self) -> int:
        storage, nodes = self._settings.storage, self._settings.cluster.nodes
        try:
            if storage.store == "sqlite":
                folder = Path(storage.data_dir)
                for other in check_folder(folder, nodes=nodes):
                    self._logger.warning("not_served", what=other)
            commands = [self._command(number) for number in range(1, nodes + 1)]
        except (CannotOpen, Damaged, InvalidSetting) as error:
            self._logger.error("cannot_start", what=str(error))
            return CANNOT_START
        if taken := problems(self._addresses()):
            for reason in taken:
                self._logger.error("cannot_start", what=reason)
            return CANNOT_START
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        await asyncio.gather(*itertools.starmap(self._keep, enumerate(commands, 1)))
        return self._status

    def _addresses(self) -> Iterator[ListenAddress]:
        for number in range(1, self._settings.cluster.nodes + 1):
            shift = (number - 1) * NODE_PORTS
            yield from addresses(self._settings, node=number, shift=shift)

    def _command(self, number: int) -> list[str]:
        flags = flags_of(self._settings, number)
        # Children look for modules where this process does: not in the working directory if it
        # does not. (`python -m coordinator` does, the command `coordinator` does not.)
        safe = [] if os.getcwd() in sys.path else ["-P"]
        program = [sys.executable, *safe, "-m", "coordinator"]
        return [*program, *self._arguments, *flags, "--supervised"]

    def _stop(self) -> None:
        self._stopping.set()
        for child in self._children.values():
            if child.returncode is None:
                child.send_signal(signal.SIGTERM)

    async def _keep(self, number: int, command: Sequence[str]) -> None:
        pause_s = BACK_OFF_S
        for start in itertools.count(1):
            began = time.monotonic()
            child = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
            self._children[number] = child
            if self._stopping.is_set():
                child.send_signal(signal.SIGTERM)
            status = await child.wait()
            if self._stopping.is_set():
                return
            if status in (CANNOT_START, WRONG_USAGE) and start == 1:
                self._status = CANNOT_START
                self._stop()
                return
            self._logger.error("node_ended", number=number, status=status)
            pause_s = BACK_OFF_S if time.monotonic() - began > LONG_ENOUGH_S else pause_s * 2
            try:
                async with asyncio.timeout(min(pause_s, MOST_BACK_OFF_S)):
                    await self._stopping.wait()
                    return
            except TimeoutError:
                continue
