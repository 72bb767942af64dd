"""Classification of errors as the four failures, lasting or not. No store is needed."""

from __future__ import annotations

import errno

import apsw
import grpc
import pytest

from coordinator.core.values.ids import ShardId
from coordinator.runtime.jobs import job_failed
from coordinator.shard.effects import TakeOver
from coordinator.storage import etcd, zookeeper
from coordinator.storage.etcd import EtcdLog
from coordinator.storage.etcd_client import failure_of
from coordinator.storage.log import Ambiguous, Damaged, Fence, LogUnavailable, TooLarge
from coordinator.storage.writer import _in_our_words
from coordinator.storage.zookeeper import ZooKeeperLog

Code = grpc.StatusCode


@pytest.mark.parametrize(
    ("code", "words", "expected", "is_lasting"),
    [
        (
            Code.RESOURCE_EXHAUSTED,
            "etcdserver: mvcc: database space exceeded",
            LogUnavailable,
            True,
        ),
        (Code.RESOURCE_EXHAUSTED, "etcdserver: too many requests", LogUnavailable, False),
        (Code.PERMISSION_DENIED, "etcdserver: permission denied", LogUnavailable, True),
        (Code.UNAUTHENTICATED, "etcdserver: invalid auth token", LogUnavailable, True),
        (Code.INVALID_ARGUMENT, "etcdserver: request is too large", TooLarge, False),
        (Code.UNAVAILABLE, "etcdserver: leader changed", Ambiguous, False),
        (Code.DEADLINE_EXCEEDED, "context deadline exceeded", Ambiguous, False),
    ],
)
def test_failures_of_etcd(code, words, expected, is_lasting):
    nothing = grpc.aio.Metadata()
    failure = failure_of(grpc.aio.AioRpcError(code, nothing, nothing, details=words))
    assert type(failure) is expected
    assert job_failed(TakeOver(ShardId(0), 0), failure).is_lasting is is_lasting


@pytest.mark.parametrize(
    ("error", "is_lasting"),
    [
        (apsw.FullError("disk"), True),
        (apsw.ReadOnlyError("disk"), True),
        (apsw.BusyError("backup"), False),
        (apsw.LockedError("backup"), False),
        (apsw.IOError("cable"), False),
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EROFS, "Read-only file system"), True),
        (OSError(errno.EIO, "Input/output error"), False),
    ],
)
def test_failures_of_sqlite(error, is_lasting):
    assert _in_our_words(error).is_lasting is is_lasting


def test_a_database_that_is_not_what_was_written_is_damaged():
    assert isinstance(_in_our_words(apsw.CorruptError("malformed")), Damaged)


class Answers:
    """A store that gives these answers, one after the other."""

    def __init__(self, *answers) -> None:
        self._answers = iter(answers)
        self.kazoo = self

    async def txn(self, _):
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def resolvable(self, request):
        return await self.txn(request)

    async def commit(self, transaction):
        return await self.txn(transaction)

    def transaction(self):
        return self

    def check(self, *_) -> None:
        pass


def attempts(log, store):
    """Have the log send a transaction until its fate is known."""
    log._client = store
    if isinstance(log, EtcdLog):
        return log._until_known(None)
    log._prefix = "/p"
    return log._until_known(Fence(0, 1), lambda transaction: None)


@pytest.fixture(params=[EtcdLog, ZooKeeperLog], ids=["etcd", "zookeeper"])
def log(request, monkeypatch):
    for module in (etcd, zookeeper):
        monkeypatch.setattr(module, "RESOLVE_PAUSE_S", 0)
    return request.param.__new__(request.param)


async def test_what_was_never_sent_is_in_our_words(log):
    with pytest.raises(LogUnavailable):
        await attempts(log, Answers(LogUnavailable("gone")))


async def test_what_was_sent_once_without_an_answer_stays_in_doubt(log):
    with pytest.raises(Ambiguous):
        await attempts(log, Answers(Ambiguous("no answer"), LogUnavailable("gone")))


async def test_a_later_attempt_tells_what_an_earlier_one_did(log):
    await attempts(log, Answers(Ambiguous("no answer"), Ambiguous("no answer"), [None]))
