"""`coordinator cluster`: the nodes that share a store, and who leads which shard."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from coordinator.cli.connection import add_common_flags, credentials_of
from coordinator.cli.output import Output, show
from coordinator.cli.parser import add_actions
from coordinator.observe.rows import column

if TYPE_CHECKING:
    from coordinator.operator.cluster import ClusterAdmin


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A node of the cluster."""

    node: int = column("Node id.")
    address: str = column("HOST:PORT that the node advertises.")
    controller_epoch: int | None = column(
        "Epoch of the controller; null: the node is not the controller.",
        "CONTROLLER",
        text=lambda epoch: "-" if epoch is None else f"epoch {epoch}",
    )
    leads: int = column("Number of shards that the node leads.")
    replicas: int = column("Number of shards that the node holds, as leader or follower.")
    in_sync: int = column("Number of those in which it is in sync.")
    state: Literal["serving", "draining"] = column("Draining: it leads no shard.", is_state=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRow:
    """A shard of the cluster."""

    shard: int = column("Number of the shard.")
    leader: int | None = column("Node id of its leader; null: nobody leads it at present.")
    leader_epoch: int = column("Epoch of the leader.", "EPOCH")
    replicas: tuple[int, ...] = column("Node ids of its replicas, the preferred leader first.")
    in_sync: tuple[int, ...] = column("Node ids of the replicas that are in sync.")


def add_parsers(commands: Any) -> None:  # Any: argparse does not name its type.
    """The actions and their flags."""
    text = "list nodes and shards, and move shards between nodes"
    actions = add_actions(commands.add_parser("cluster", help=text, description=text))
    for name, text, action in (
        ("describe", "list nodes with the shards they lead; --shards lists the shards", _describe),
        ("elect", "elect the preferred leaders of shards, where they are in sync", _elect),
        ("move", "move a shard to other replicas", _move),
        ("drain", "drain a node: move its shards away and keep it running", _drain),
    ):
        command = actions.add_parser(name, help=text, description=text)
        command.set_defaults(run=run, action=action)
        if name == "describe":
            add_common_flags(command, NodeRow, ShardRow, can_watch=True)
            command.add_argument("--shards", action="store_true", help="list every shard")
        else:
            add_common_flags(command, NodeRow if name == "drain" else ShardRow)
        if name == "elect":
            command.add_argument("shard", type=int, nargs="*", help="shards (default: all)")
        if name == "move":
            command.add_argument("shard", type=int, help="shard number")
            command.add_argument(
                "node",
                type=int,
                nargs="+",
                help="node ids of the replicas, the preferred leader first",
            )
        if name == "drain":
            command.add_argument("node", type=int, help="node id")
            command.add_argument(
                "--undo", action="store_true", help="let the node lead shards again"
            )


def run(options: argparse.Namespace) -> int:
    """Run an action and print its rows; the exit status."""
    from coordinator.operator.cluster import ClusterAdmin

    with ClusterAdmin(options.bootstrap, credentials=credentials_of(options)) as admin:
        return show(options, lambda: options.action(admin, options))


def _describe(admin: ClusterAdmin, options: argparse.Namespace) -> Output:
    return _shards(admin) if options.shards else _nodes(admin)


def _nodes(admin: ClusterAdmin) -> Output:
    from coordinator.dial import address_of

    cluster = admin.describe()
    led = Counter(shard.leader for shard in cluster.shards)
    held = Counter(node for shard in cluster.shards for node in shard.replicas)
    in_sync = Counter(node for shard in cluster.shards for node in shard.in_sync)
    rows = [
        NodeRow(
            node=node.node_id,
            address=address_of(node.host, node.port),
            controller_epoch=(
                cluster.controller_epoch if node.node_id == cluster.controller else None
            ),
            leads=led[node.node_id],
            replicas=held[node.node_id],
            in_sync=in_sync[node.node_id],
            state="draining" if node.draining else "serving",
        )
        for node in cluster.nodes
    ]
    notes = []
    if (lineage := cluster.store_lineage) > 1:
        notes.append(
            f"The store has lineage {lineage}: it has lost commits, {lineage - 1} times so far; "
            "the nodes' logs say when (store_went_back)."
        )
    return Output(NodeRow, rows, empty="The cluster has no nodes.", notes=notes)


def _shards(admin: ClusterAdmin, wanted: Collection[int] = ()) -> Output:
    rows = [
        ShardRow(
            shard=shard.shard,
            leader=None if shard.leader < 0 else shard.leader,
            leader_epoch=shard.epoch,
            replicas=tuple(shard.replicas),
            in_sync=tuple(shard.in_sync),
        )
        for shard in admin.describe().shards
        if not wanted or shard.shard in wanted
    ]
    return Output(ShardRow, rows, empty="No shard has been given to a node yet.")


def _elect(admin: ClusterAdmin, options: argparse.Namespace) -> Output:
    _check_shards(admin, options.shard)
    admin.elect(options.shard)
    return _shards(admin, options.shard)


def _move(admin: ClusterAdmin, options: argparse.Namespace) -> Output:
    _check_shards(admin, [options.shard])
    _check_nodes(admin, options.node)
    admin.move(options.shard, options.node)
    return _shards(admin, [options.shard])


def _drain(admin: ClusterAdmin, options: argparse.Namespace) -> Output:
    _check_nodes(admin, [options.node])
    admin.drain(options.node, undo=options.undo)
    return _nodes(admin)


def _check_nodes(admin: ClusterAdmin, nodes: Collection[int]) -> None:
    _check("node", nodes, sorted(admin.addresses()))


def _check_shards(admin: ClusterAdmin, shards: Collection[int]) -> None:
    if shards:
        _check("shard", shards, sorted(shard.shard for shard in admin.describe().shards))


def _check(subject: str, wanted: Collection[int], known: Collection[int]) -> None:
    """Refuse what the cluster does not have. Raises `LookupError`, which says what it has."""
    from coordinator.cli.refusals import not_there

    for number in wanted:
        if number not in known:
            raise LookupError(not_there(subject, number, list(known)))
