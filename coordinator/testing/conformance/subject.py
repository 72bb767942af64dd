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
from coordinator.client import (
    CoordinatorError,
    Granted,
    Holding,
    Lost,
    Member,
    MemberEvent,
    Resumed,
    Revoking,
    Stopping,
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
        self._member = Member(
            told["BOOTSTRAP"],
            told["GROUP"],
            {self._topic: partitions},
            protocol="session",
            member_name=os.environ[PREFIX + "MEMBER_NAME"] or None,
        )
        self._holdings: dict[int, Holding] = {}
        """The last one that was heard of, by number of partition."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Work until the member has stopped, or nobody tells it anything any more."""
        await self._member.start()
        listening = asyncio.create_task(self._listen())
        try:
            async for event in self._member.events():
                self._tell(event)
            _say("stopping", reason="it has left")
        except CoordinatorError as error:
            _say("stopping", reason=str(error))
        finally:
            listening.cancel()

    def _tell(self, event: MemberEvent) -> None:
        """Say an event. What is lost is released at once: nothing of it runs."""
        if isinstance(event, Stopping):
            return
        for holding in event.holdings:
            self._holdings[holding.partition.partition] = holding
            match event:
                case Granted():
                    _say("granted", holding, token=holding.token, offset=holding.offset)
                case Warming():
                    _say("warming", holding, position=holding.position)
                case Revoking():
                    _say("draining", holding)
                case Lost():
                    _say("lost", holding)
                    if not event.was_warming:
                        self._member.released(holding)
                case Suspended():
                    _say("suspended", holding)
                case Resumed():
                    _say("resumed", holding)

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
        number = told.get("partition", 0)
        holding = self._holdings.get(number) or Holding(TopicPartition(self._topic, number))
        member = self._member
        match told["do"]:
            case "valid":
                valid, takes_work = member.valid(holding), member.takes_work(holding)
                _say("valid", holding, valid=valid, takes_work=takes_work)
            case "ready":
                member.ready(holding)
            case "release":
                member.released(holding, told.get("position", -1))
            case "refuse":
                member.refuse(holding, told["reason"])
            case "commit":
                await self._commit(holding, told["offset"])
            case "leave" if told["kind"] == "DRAIN":
                member.drain(told["within_ms"])
            case "leave":
                await member.close(return_within_ms=told.get("within_ms"))

    async def _commit(self, holding: Holding, offset: int) -> None:
        try:
            await self._member.commit({holding.partition: offset}, holdings=holding)
        except CoordinatorError as error:
            _say("committed", holding, error=type(error).__name__)
        else:
            _say("committed", holding, error="NONE")


def _say(event: str, holding: Holding | None = None, **more: Any) -> None:
    where = {} if holding is None else {"partition": holding.partition.partition}
    print(json.dumps({"event": event, **where, **more}), flush=True)


if __name__ == "__main__":
    asyncio.run(Subject().run())
