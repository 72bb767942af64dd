"""`coordinator cluster`: the nodes that share a store, and who leads which shard."""

from __future__ import annotations

import argparse
from collections import Counter

from coordinator.cli.connection import add_common_flags, credentials_of
from coordinator.cli.output import Row, show
from coordinator.client.cluster import ClusterAdmin

ABSENT = "-"


def add_parsers(parser: argparse.ArgumentParser) -> None:
    """The actions and their flags."""
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    for name, text, action in (
        ("describe", "list nodes with the shards they lead; --shards lists the shards", _describe),
        ("elect", "elect the preferred leaders of shards, where they are in sync", _elect),
        ("move", "move a shard to other replicas", _move),
        ("drain", "drain a node: move its shards away and keep it running", _drain),
    ):
        command = actions.add_parser(name, help=text, description=text)
        command.set_defaults(run=run, action=action)
        add_common_flags(command)
        if name == "describe":
            command.add_argument("--shards", action="store_true", help="list every shard")
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
    with ClusterAdmin(options.bootstrap, credentials=credentials_of(options)) as admin:
        return show(options, lambda: options.action(admin, options))


def _describe(admin: ClusterAdmin, options: argparse.Namespace) -> list[Row]:
    return _shards(admin) if options.shards else _nodes(admin)


def _nodes(admin: ClusterAdmin) -> list[Row]:
    cluster = admin.describe()
    led = Counter(shard.leader for shard in cluster.shards)
    held = Counter(node for shard in cluster.shards for node in shard.replicas)
    in_sync = Counter(node for shard in cluster.shards for node in shard.in_sync)
    return [
        {
            "NODE": str(node.node_id),
            "ADDRESS": f"{node.host}:{node.port}",
            "CONTROLLER": f"epoch {cluster.controller_epoch}"
            if node.node_id == cluster.controller
            else ABSENT,
            "LEADS": str(led[node.node_id]),
            "REPLICAS": str(held[node.node_id]),
            "IN-SYNC": str(in_sync[node.node_id]),
            "STATE": "draining" if node.draining else "serving",
        }
        for node in cluster.nodes
    ]


def _shards(admin: ClusterAdmin) -> list[Row]:
    return [
        {
            "SHARD": str(shard.shard),
            "LEADER": ABSENT if shard.leader < 0 else str(shard.leader),
            "EPOCH": str(shard.epoch),
            "REPLICAS": ",".join(map(str, shard.replicas)) or ABSENT,
            "IN-SYNC": ",".join(map(str, shard.in_sync)) or ABSENT,
        }
        for shard in admin.describe().shards
    ]


def _elect(admin: ClusterAdmin, options: argparse.Namespace) -> list[Row]:
    admin.elect(options.shard)
    return _shards(admin)


def _move(admin: ClusterAdmin, options: argparse.Namespace) -> list[Row]:
    admin.move(options.shard, options.node)
    return [row for row in _shards(admin) if row["SHARD"] == str(options.shard)]


def _drain(admin: ClusterAdmin, options: argparse.Namespace) -> list[Row]:
    admin.drain(options.node, undo=options.undo)
    return _nodes(admin)
