"""`coordinator store`: what a database needs before nodes use it, and after a copy was put back."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from coordinator.cli.flags import WrongUsage, add_output_flag, count_up_to
from coordinator.cli.output import DONE, Output, reason_of_refusal, show
from coordinator.cli.parser import add_actions
from coordinator.core.limits import SHARDS
from coordinator.observe.rows import column

if TYPE_CHECKING:
    from coordinator.storage.postgres_lineage import PostgresStore

CREDENTIALS = "its credentials come from COORDINATOR_STORE_… in the environment"


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageRow:
    """The lineage that a store has begun."""

    store: str = column("Hosts, database and cluster.")
    lineage: int = column("Number of the lineage, counted from 1.")
    raised: int = column("Number by which epochs and generations were raised.")
    timeline: int = column("Timeline of the server.")


def add_parsers(commands: Any) -> None:  # Any: argparse does not name its type.
    """The actions and their flags."""
    text = "prepare a PostgreSQL store, or tell nodes that a copy of it was put back"
    actions = add_actions(commands.add_parser("store", help=text, description=text))
    text = "print the SQL that makes the tables, and grants a role what nodes need"
    command = actions.add_parser("sql", help=text, description=text)
    command.set_defaults(run=_sql, kinds=())
    command.add_argument(
        "--cluster", type=_cluster, default="coordinator", help="name of the schema"
    )
    command.add_argument(
        "--shards",
        type=partial(count_up_to, SHARDS.items),
        help="number of shards, for good (default: that of the setting)",
    )
    command.add_argument("--role", default="", help="role that nodes log in as")
    text = "list the nodes of a PostgreSQL store, with the token of those that workers run"
    command = actions.add_parser("nodes", help=text, description=f"Print a JSON document: {text}.")
    command.set_defaults(run=_nodes, kinds=())
    command.add_argument("store", nargs="?", default="", help="its URL [COORDINATOR_STORE]")
    text = "have nodes raise all numbers, after a copy of the database was put back"
    command = actions.add_parser("restored", help=text, description=text)
    command.set_defaults(run=_restored)
    command.add_argument("store", help=f"URL of the store, postgresql://…; {CREDENTIALS}")
    add_output_flag(command, LineageRow)


def _sql(options: argparse.Namespace) -> int:
    from coordinator.runtime.stores import needs_psycopg
    from coordinator.settings.sections import StorageConfig

    def act() -> int:
        with needs_psycopg():
            from coordinator.storage.postgres_schema import ddl
        shards = options.shards or StorageConfig().shards
        print(ddl(options.cluster, shards, options.role), end="")
        return DONE

    return reason_of_refusal(options, act)


def _cluster(text: str) -> str:
    from coordinator.settings.parsers import cluster_name

    try:
        return cluster_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _nodes(options: argparse.Namespace) -> int:
    def act() -> int:
        store = _store_of(options.store or os.environ.get("COORDINATOR_STORE", ""))
        from coordinator.dial import address_of
        from coordinator.storage.postgres_reservations import Known, Reservations
        from coordinator.storage.postgres_schema import exists

        known = Known([], "", 0)
        try:
            with contextlib.closing(store.server.connect()) as connection:
                is_there = exists(connection, store.server.target.schema)
            if is_there:
                known = Reservations(store).known()
        finally:
            store.server.watchdog.close()
        node_rows = [
            {"address": address_of(info.host, info.port), "machine": machine}
            for info, machine in known.nodes
            if not info.stopping
        ]
        print(json.dumps({"nodes": node_rows, "token": known.token, "starting": known.starting}))
        return DONE

    return reason_of_refusal(options, act)


def _restored(options: argparse.Namespace) -> int:
    def act() -> Output:
        store = _store_of(options.store)
        from coordinator.storage.postgres_schema import prepare

        try:
            connection = store.server.connect()
            try:
                prepare(connection, store.server.target.schema, None)
                store.check(connection, is_restored=True)
            finally:
                connection.close()
        finally:
            store.server.watchdog.close()
        lineage = store.lineage
        assert lineage is not None
        row = LineageRow(
            store=str(store.server.target),
            lineage=lineage.number,
            raised=lineage.raised,
            timeline=lineage.position.timeline,
        )
        note = "Nodes that run notice it within a session, and load their shards anew."
        return Output(LineageRow, [row], notes=[note])

    return show(options, act)


def _store_of(url: str) -> PostgresStore:
    from coordinator.core.setting import InvalidSetting
    from coordinator.runtime.stores import postgres_store
    from coordinator.settings.sources import Sources, load

    try:
        settings, _ = load(Sources(flags={"store": url}, environment=os.environ, file=None))
    except InvalidSetting as error:
        raise WrongUsage(str(error)) from error
    shared = settings.storage.shared_store
    if shared is None or shared.kind != "postgresql":
        raise WrongUsage("only a PostgreSQL store has a lineage: give postgresql://…")
    return postgres_store(settings.storage, shared)
