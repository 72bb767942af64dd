"""A coordinator for Kafka's clients, as a process that can be killed and restarted."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

from coordinator.cli.main import main
from coordinator.operator.admin import GroupAdmin
from tests.integration.kafka.clients import Partition
from tests.kit.serving import Process, free_port

TOPIC, PARTITIONS = "rows", 6
EVERYTHING = {(TOPIC, number) for number in range(PARTITIONS)}


class Served:
    """A coordinator on a folder, always at the same two ports, with the topic `rows`."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self._flags = (
            "--data-dir", str(folder), "--listen", f"127.0.0.1:{free_port()}",
            "--kafka-listen", f"127.0.0.1:{free_port()}",
            "--group-initial-rebalance-delay-ms", "500", *flags,
        )  # fmt: skip
        self._process = Process(*self._flags)
        self.address, self.kafka = self._process.address, self._process.kafka
        self.run("topics", "set", TOPIC, str(PARTITIONS))

    @property
    def log(self) -> list[dict[str, Any]]:
        """The lines of the log since the last start."""
        return self._process.lines

    def run(self, *command: str) -> str:
        """Output of one of the commands; not from several threads at once."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert main([*command, "--bootstrap", self.address]) == 0, command
        return out.getvalue()

    def rows(self, *command: str) -> list[dict[str, Any]]:
        """The rows that one of the commands prints."""
        return json.loads(self.run(*command, "-o", "json"))

    def metrics(self) -> str:
        """HOST:PORT of its metrics."""
        return self._process.metrics

    def kill_and_start(self) -> None:
        """SIGKILL, and a start on the same folder."""
        self._process.kill()
        self._process = Process(*self._flags)

    def stop(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def generation(self, group: str) -> int:
        """The group's generation."""
        with GroupAdmin(self.address) as admin:
            return admin.describe_group(group).generation_id

    def offsets(self, group: str) -> dict[Partition, int]:
        """The committed offsets."""
        with GroupAdmin(self.address) as admin:
            offsets = admin.offsets(group)
        return {(item.topic, item.partition): offset for item, offset in offsets.items()}

    def causes(self, group: str) -> list[tuple[str, str]]:
        """Cause and client id of each rebalance, newest first."""
        with GroupAdmin(self.address) as admin:
            rebalances = admin.journal(group).rebalances
        return [(rebalance.cause_code, rebalance.client_id) for rebalance in rebalances]

    def journal(self, group: str) -> str:
        """Causes of its rebalances in words, newest first."""
        with GroupAdmin(self.address) as admin:
            rebalances = admin.journal(group).rebalances
        return "\n".join(
            f"{entry.generation_before} to {entry.generation_after}: {entry.explanation[1]}"
            for entry in rebalances
        )
