"""Settings of a member beside its machine: what it takes from its process, and a worker's own."""

from __future__ import annotations

import random as random_module
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from coordinator.client.settings import value_kinds
from coordinator.client.settings.setting import SettingKind, setting
from coordinator.client.transport.process_environment import epoch_ms
from coordinator.dial import Credentials

if TYPE_CHECKING:
    from coordinator.client.log_ends import LogEnds

ON_VIRTUAL_TIME = "its environment has one; coordinator.testing runs workers on virtual time"


def _credentials(name: str, value: object) -> Credentials:
    if not isinstance(value, Credentials):
        raise TypeError(f"{name} is no Credentials; write {name}=Credentials(token='…')")
    return value


# fmt: off


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessConfig:
    """Settings of a member that are not its machine's."""

    log_ends: LogEnds | None = setting(None, value_kinds.FUNCTION,
        "Returns the log end offsets of partitions, or the ranges of offsets that logs have where "
        "their first rows are gone; reported to the coordinator every `log_ends_interval_s`, so "
        "that it can compute lag. Called in a thread of its own.")
    log_ends_interval_s: float = setting(5.0, value_kinds.SECONDS,
        "Interval of the reports of `log_ends`.")
    credentials: Credentials = setting(Credentials(), SettingKind(_credentials),
        "TLS and token. None: from environment variables.", default_text=None,
        typed="Credentials | None")
    handle_signals: bool = setting(True, value_kinds.FLAG,
        "True: inside `with` or `async with` in the main thread, Ctrl-C and SIGTERM end the "
        "`with`, unless the program handles them itself, so that the member leaves; then the "
        "process ends without a traceback.",
        in_workers="its `run` has: worker.run(handle_signals=False)")
    give_back: Literal["poll", "released"] = setting("poll", value_kinds.choice("poll", "released"),
        "Way of giving back. poll: each `poll` gives back what the one before has told to be "
        "revoked or lost. released: the owner does, by `released`, for each holding.",
        default_text="poll in classic groups, released in session groups",
        in_workers="a partition is given back when its handler has ended")
    clock: Callable[[], int] = setting(epoch_ms, value_kinds.FUNCTION,
        "Returns epoch milliseconds, and counts while the machine sleeps; for tests.",
        default_text="the system's", in_workers=ON_VIRTUAL_TIME)
    random: Callable[[], float] = setting(random_module.random, value_kinds.FUNCTION,
        "Returns a number in [0, 1); for tests.", default_text="random.random",
        in_workers=ON_VIRTUAL_TIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Settings of a worker that are not its member's."""

    max_failures: int | None = setting(5, value_kinds.whole("failures", least=1),
        "The default of `max_attempts` in session groups, where the worker refuses the partition "
        "then, so that another one gets it, unless `after_max_attempts` is stop.", typed="int",
        protocol="session", instead="write max_attempts=5")
