"""Telling the coordinator where the logs end that a member reads, so that its lag can be seen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

import grpc

from coordinator.assignors import TopicPartition
from coordinator.client.connection import CALL_TIMEOUT_S, Connection
from coordinator.client.machine import MemberMachine
from coordinator.sources.base import Source
from coordinator.v1 import group_pb2 as pb

LOGGER = logging.getLogger(__name__)
LogEnds = Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]]
"""The offset after the last row of each of the partitions. Called in a thread of its own."""


def ends_of(source: Source) -> LogEnds:
    """For `log_ends` of a member that reads one source."""

    def log_ends(partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {p: source.end_offset(p.partition) for p in partitions if p.topic == source.topic}

    return log_ends


async def report_log_ends(
    machine: MemberMachine, connection: Connection, log_ends: LogEnds, interval_s: float
) -> None:
    """Report every so often, until cancelled. Nobody's work depends on it: trouble is logged."""
    # One thread, the same for all looks: some sources keep a connection a thread.
    thread = ThreadPoolExecutor(1, "coordinator-log-ends")
    try:
        while True:
            await asyncio.sleep(interval_s)
            if not machine.assignment:
                continue
            loop = asyncio.get_running_loop()
            try:
                ends = await loop.run_in_executor(thread, log_ends, machine.assignment)
                await connection.call("ReportLogEnds", _request(machine, ends), CALL_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                    return  # A coordinator from before there was lag.
            except Exception as error:  # noqa: BLE001  # Whatever the source raises.
                LOGGER.warning("where the logs end could not be told: %s", error)
    finally:
        thread.shutdown(wait=False)  # Nobody waits for a source that hangs.


def _request(machine: MemberMachine, ends: Mapping[TopicPartition, int]) -> pb.ReportLogEndsRequest:
    request = pb.ReportLogEndsRequest(
        group_id=machine.config.group_id,
        generation_id=machine.generation,
        member_id=machine.member_id,
        group_instance_id=machine.config.instance_id,
    )
    topics: dict[str, pb.ReportLogEndsRequest.Topic] = {}
    for key, offset in ends.items():
        if key.topic not in topics:
            topics[key.topic] = request.topics.add(name=key.topic)
        topics[key.topic].partitions.add(partition_index=key.partition, log_end_offset=offset)
    return request
