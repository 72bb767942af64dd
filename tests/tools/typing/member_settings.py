"""Settings of members, right and wrong: each `type: ignore` has to be needed."""

from __future__ import annotations

from coordinator.client import (
    BlockingMember,
    Member,
    MemberSettings,
    Worker,
    WorkerSettings,
)


def settings_are_typed() -> None:
    Member("a:1", "g", {"t": 1}, session_timeout_ms=45_000, assignors=("range",))
    BlockingMember("a:1", "g", {"t": 1}, max_poll_interval_ms=None, client_id="worker-1")
    shared: MemberSettings = {"instance_id": "worker-1", "fallback_assignor": "range"}
    Member("a:1", "g", {"t": 1}, **shared)
    BlockingMember("a:1", "g", {"t": 1}, **shared)


def unknown_settings_are_errors() -> None:
    Member("a:1", "g", {"t": 1}, session_timeout=45)  # type: ignore[call-arg]
    BlockingMember("a:1", "g", {"t": 1}, sesion_timeout_ms=45_000)  # type: ignore[call-arg]
    wrong: MemberSettings = {"group_instance_id": "x"}  # type: ignore[typeddict-unknown-key]
    Member("a:1", "g", {"t": 1}, **wrong)


def wrong_types_are_errors() -> None:
    Member("a:1", "g", {"t": 1}, session_timeout_ms="45000")  # type: ignore[arg-type]
    BlockingMember("a:1", "g", {"t": 1}, credentials="token")  # type: ignore[arg-type]
    BlockingMember("a:1", "g", ["t"])  # type: ignore[arg-type]
    wrong: WorkerSettings = {"give_back": "never"}  # type: ignore[typeddict-item]
    Worker("a:1", "g", {"t": 1}, **wrong)
