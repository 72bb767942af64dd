"""The project's own member as a client under test, and an example of one.

Start it as `--client "python -m coordinator.testing.conformance.subject"`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from coordinator.assignors import TopicPartition
from coordinator.client import CoordinatorError, SessionMember
from coordinator.client.member.session.changes import (
    Draining,
    Granted,
    Lost,
    Resumed,
    Suspended,
    Warming,
)
from coordinator.testing.conformance.client.process import PREFIX


class Subject:
    """One member that says what it hears, and does as it is told."""

    def __init__(self) -> None:
        told = {name: os.environ[PREFIX + name] for name in ("BOOTSTRAP", "GROUP", "TOPIC")}
        self._topic = told["TOPIC"]
        partitions = int(os.environ[PREFIX + "PARTITIONS"])
        self._member = SessionMember(
            told["BOOTSTRAP"],
            told["GROUP"],
            {self._topic: partitions},
            member_name=os.environ[PREFIX + "MEMBER_NAME"] or None,
        )
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Work until the member has stopped, or nobody tells it anything any more."""
        await self._member.start()
        listening = asyncio.create_task(self._listen())
        try:
            async for change in self._member.changes():
                self._tell(change)
            _say("stopping", reason="it has left")
        except CoordinatorError as error:
            _say("stopping", reason=str(error))
        finally:
            listening.cancel()

    def _tell(self, change: Any) -> None:
        """Say a change. What is lost is released at once: nothing of it runs."""
        match change:
            case Granted(partition, token, offset):
                _say("granted", partition, token=token, offset=offset)
            case Warming(partition):
                _say("warming", partition, position=change.position)
            case Draining(partition):
                _say("draining", partition)
            case Lost(partition):
                _say("lost", partition)
                if not change.was_warming:
                    self._member.released(partition)
            case Suspended(partition):
                _say("suspended", partition)
            case Resumed(partition):
                _say("resumed", partition)

    async def _listen(self) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        async for line in reader:
            task = asyncio.create_task(self._do(json.loads(line)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        sys.exit(0)  # The kit has ended.

    async def _do(self, told: dict[str, Any]) -> None:
        partition = TopicPartition(self._topic, told.get("partition", 0))
        member = self._member
        match told["do"]:
            case "valid":
                valid, takes_work = member.valid(partition), member.takes_work(partition)
                _say("valid", partition, valid=valid, takes_work=takes_work)
            case "ready":
                member.ready(partition)
            case "release":
                member.released(partition, told.get("position", -1))
            case "refuse":
                member.refuse(partition, told["reason"])
            case "commit":
                await self._commit(partition, told["offset"])
            case "leave" if told["kind"] == "DRAIN":
                member.drain(told["within_ms"])
            case "leave":
                await member.close(return_within_ms=told.get("within_ms"))

    async def _commit(self, partition: TopicPartition, offset: int) -> None:
        try:
            await self._member.commit({partition: offset})
        except CoordinatorError as error:
            _say("committed", partition, error=type(error).__name__)
        else:
            _say("committed", partition, error="NONE")


def _say(event: str, partition: TopicPartition | None = None, **more: Any) -> None:
    where = {} if partition is None else {"partition": partition.partition}
    print(json.dumps({"event": event, **where, **more}), flush=True)


if __name__ == "__main__":
    asyncio.run(Subject().run())
