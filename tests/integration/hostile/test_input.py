"""Any message, and any bytes that are none, to every RPC of a live server.

Whatever comes: no call fails as if the server had (INTERNAL, UNKNOWN), the log holds no traceback,
groups keep their invariants, members that behave are answered, and memory stays where it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections import Counter
from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from coordinator.observe.logs import is_worth_logging
from coordinator.v1 import (
    admin_pb2,
    cluster_pb2,
    group_pb2,
    group_pb2_grpc,
    replica_pb2,
    session_pb2,
)
from coordinator.v1 import group_pb2 as pb
from tests.campaigns.fuzz import corpus
from tests.campaigns.fuzz.messages import GROUP, MEMBERS, messages, with_ids
from tests.campaigns.fuzz.mutate import mutations
from tests.kit import requests
from tests.kit.patience import HANG_S
from tests.kit.serving import Process, running

METHODS = [
    method
    for file in (
        group_pb2,
        session_pb2,
        admin_pb2,
        cluster_pb2,
        replica_pb2,
        health_pb2,
        reflection_pb2,
    )
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]
# Takes the node out of service, which is what it is for.
DRAIN = cluster_pb2.DESCRIPTOR.services_by_name["ClusterAdmin"].methods_by_name["DrainNode"]
NOT_OURS = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.UNAVAILABLE}
CALL_S = 0.3
"""Seconds after which a parked call is cancelled, which the server has to bear, too."""
GROWTH_MIB = 64


def path(method) -> str:
    return f"/{method.containing_service.full_name}/{method.name}"


def begin(channel: grpc.Channel, method, sent: list[bytes]):
    """A call under way: raw bytes go out, and raw bytes come back."""
    kinds = [
        "stream" if streaming else "unary"
        for streaming in (method.client_streaming, method.server_streaming)
    ]
    call = getattr(channel, "_".join(kinds))(path(method))
    if method.client_streaming:
        return call(iter(sent), timeout=CALL_S)
    if method.server_streaming:
        return call(sent[0], timeout=CALL_S)
    return call.future(sent[0], timeout=CALL_S)


def end(method, call) -> grpc.StatusCode:
    """Wait for a call; its status."""
    if method.server_streaming:
        with contextlib.suppress(grpc.RpcError):  # Its code says it.
            for _ in call:
                pass
    else:
        call.exception()
    return call.code()


def new_group(channel: grpc.Channel, names: Iterator[str]) -> dict[str, str]:
    """A group with two members that behave, for the others to disturb: stand-ins to ids."""
    for name in names:
        joined = join_both(channel, name)
        # On a busy machine, the second comes when the first generation has begun.
        if {answer.generation_id for answer in joined} == {1}:
            ids = (answer.member_id for answer in joined)
            return {GROUP: name, **dict(zip(MEMBERS, ids, strict=True))}
    raise AssertionError("names do not end")


def join_both(channel: grpc.Channel, name: str) -> list[pb.JoinGroupResponse]:
    joins = [
        group_pb2_grpc.GroupCoordinatorStub(channel).JoinGroup.future(
            requests.join(name, session_timeout_ms=6_000, rebalance_timeout_ms=500),
            timeout=HANG_S,
        )
        for _ in MEMBERS
    ]
    return [join.result() for join in joins]


calls = st.one_of(
    [
        st.tuples(
            st.just(method),
            st.lists(messages(method.input_type), min_size=1, max_size=3),
        )
        for method in METHODS
        if method is not DRAIN
    ]
)
storm = settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # A failure shows soon; to shrink it takes minutes.
)


class InProcess:
    """A server on a loop in a thread of its own, whose groups can be looked at."""

    def __enter__(self) -> InProcess:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._running = running(group_initial_rebalance_delay_ms=30)
        self.server = self.do(self._running.__aenter__())
        return self

    def do(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(HANG_S)

    def __exit__(self, *error) -> None:
        try:
            self.do(self._running.__aexit__(*error))
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def check(self) -> int:
        """The invariants of every shard; how many groups there are."""
        shards = [runner.shard for runner in self.server.node._runners.values()]
        for shard in shards:
            shard.check()
        return sum(len(shard.machine.groups) for shard in shards)


def test_any_messages_in_any_order(caplog):
    seen: Counter[grpc.StatusCode] = Counter()
    with InProcess() as server, grpc.insecure_channel(server.server.address) as channel:
        names = (f"group-{number}" for number in itertools.count())

        @storm
        @given(st.lists(calls, min_size=1, max_size=12))
        def attack(some) -> None:
            ids = new_group(channel, names)
            under_way = [
                begin(channel, m, [with_ids(r, ids).SerializeToString() for r in requests])
                for m, requests in some
            ]
            for (method, _), call in zip(some, under_way, strict=True):
                status = end(method, call)
                assert status not in NOT_OURS, f"{path(method)}: {status}: {call.details()}"
                seen[status] += 1
            assert server.do(server.check()) > 0
            assert server.server.failures == []

        attack()
    assert [r for r in caplog.records if r.levelname == "ERROR" and is_worth_logging(r)] == []
    assert seen[grpc.StatusCode.OK] > 100
    assert seen[grpc.StatusCode.INVALID_ARGUMENT] > 30


@pytest.fixture
def server():
    with Process("--group-initial-rebalance-delay-ms", "30") as process:
        yield process


def test_any_bytes(server):
    before = server.rss_mib()
    seeds = [seed[1:] for seed in corpus.read("requests")]
    with grpc.insecure_channel(server.address) as channel:
        for method in METHODS:
            if method is DRAIN:
                continue
            some = [b"", b"\xff" * 1_000, b"\x0a\xff\xff\xff\xff\x0f", b"\0" * 100_000]
            some += itertools.islice(mutations(seeds, seed=5), 60)
            for call in [begin(channel, method, [data]) for data in some]:
                status = end(method, call)
                assert status not in NOT_OURS, f"{path(method)}: {status}: {call.details()}"
        nothing = channel.unary_unary("/coordinator.v1.GroupCoordinator/Nothing")
        with pytest.raises(grpc.RpcError) as refused:
            nothing(b"", timeout=HANG_S)
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert new_group(channel, (f"group-{number}" for number in itertools.count()))
    assert server.rss_mib() - before < GROWTH_MIB
    assert [line for line in server.lines if "exception" in line or line["level"] == "error"] == []
