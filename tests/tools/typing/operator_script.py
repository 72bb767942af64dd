"""Scripts of operators, right and wrong: each `type: ignore` is needed."""

from __future__ import annotations

from coordinator.assignors import TopicPartition
from coordinator.operator import (
    ClusterAdmin,
    GroupAdmin,
    GroupNotFound,
    GroupPolicy,
    Health,
    TopicAdmin,
    TopicRefused,
)


def groups_and_offsets() -> None:
    with GroupAdmin("a:1,b:1", remember=True) as admin:
        for group in admin.list_groups(states=["Stable"]):
            members: list[str] = [member.client_id for member in admin.describe_group("g").members]
            print(group.group_id, members, admin.offsets(group.group_id))
        refused: dict[TopicPartition, str] = admin.commit("g", {TopicPartition("t", 0): 7})
        admin.commit("g", {0: 7})  # type: ignore[dict-item]
        admin.find_groups(limit=10, order="NAME")  # type: ignore[arg-type]
        try:
            lease_ms: int = admin.set_group_policy("g", GroupPolicy(lease_ms=10_000)).lease_ms
            admin.evict_member("g", "m")  # type: ignore[call-arg]
        except GroupNotFound as error:
            print(error.group_id, refused)
        else:
            print(lease_ms)


def nodes_and_topics() -> None:
    with ClusterAdmin("a:1") as cluster, Health("a:1") as health, TopicAdmin("a:1") as topics:
        cluster.drain(1, undo=True)
        cluster.drain("n1")  # type: ignore[arg-type]
        statuses: dict[str, str] = health.statuses(timeout_s=1.0)
        try:
            before: int = topics.set_topic("t", 12)
        except TopicRefused as refused:
            print(refused.code, statuses)
        else:
            print(before)
