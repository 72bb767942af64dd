"""`coordinator log`: dump the records of a data folder, verify it, or back it up.

Read-only; works whether a coordinator is running on the folder or not.
"""

from __future__ import annotations

import argparse
import base64
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coordinator.cli.flags import WrongUsage, add_output_flag
from coordinator.cli.formats import as_json, as_yaml
from coordinator.cli.output import DONE, Output, complain, show
from coordinator.cli.parser import add_actions
from coordinator.observe.rows import column
from coordinator.printable import printable

if TYPE_CHECKING:
    from coordinator.core.values.ids import ShardId
    from coordinator.core.values.records import Record
    from coordinator.storage.inspection import ShardReport
    from coordinator.storage.log import Loaded


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedShard:
    """A shard of a data folder, as `verify` found it."""

    shard: int = column("Number of the shard.")
    epoch: int = column("Fence epoch: that of its last leader.")
    sequence: int = column("Sequence number of the last entry.")
    entries: int = column("Number of entries after the snapshot.")
    snapshot_sequence: int = column("Sequence number of the snapshot; 0: there is none.")
    records: int = column("Number of records that were read.")
    ok: bool = column("True if every checksum, number and place is right.", is_state=True)
    problem: str | None = column("The damage; null: there is none.", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A copy of a data folder."""

    backup: str = column("Folder of the copy.")
    bytes: int = column("Size of the copy.")
    shards: int = column("Number of shards in it.")
    records: int = column("Number of records in it.")
    ok: bool = column("True if the copy was verified.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpedRecord:
    """A record of a log. Its own fields are further keys, different ones for each kind."""

    shard: int = column("Number of the shard.")
    sequence: int | None = column("Sequence number of the entry; not there: of a snapshot.")
    record: str = column("Kind of the record.")
    group_id: str = column("Group id.", "GROUP")


def add_parsers(commands: Any) -> None:  # Any: argparse does not name its type.
    """The actions and their flags."""
    text = "dump, verify or back up a data folder"
    actions = add_actions(commands.add_parser("log", help=text, description=text))
    for name, text, action, kind in (
        ("dump", "print every record, by default as a line of JSON", _dump, DumpedRecord),
        (
            "verify",
            "read and check every entry; exit status 1 if something is wrong",
            _verify,
            VerifiedShard,
        ),
        ("backup", "make a consistent copy, also while the coordinator runs", _backup, Backup),
    ):
        command = actions.add_parser(name, help=text, description=text)
        command.set_defaults(run=_run, action=action)
        add_output_flag(command, kind)
        if name == "dump":
            command.set_defaults(output="json")
            command.add_argument(
                "store",
                help="data folder, or URL of the shared store (etcd://…, zookeeper://…; its "
                "credentials come from COORDINATOR_STORE_… in the environment)",
            )
            command.add_argument("--shard", type=int, metavar="N", help="only this shard")
            command.add_argument("--group", metavar="ID", help="only this group")
        else:
            command.add_argument("data_dir", type=Path, help="data folder")
        if name == "backup":
            command.add_argument("target", type=Path, help="folder for the copy")


def _run(options: argparse.Namespace) -> int:
    from coordinator.core.setting import InvalidSetting

    try:
        status: int = options.action(options)
    except InvalidSetting as error:
        raise WrongUsage(str(error)) from error
    return status


def _dump(options: argparse.Namespace) -> int:
    from coordinator.storage import inspection
    from coordinator.storage.log import Damaged
    from coordinator.storage.soundness import ADVICE
    from coordinator.storage.sql_log import read_shard
    from coordinator.storage.sqlite import SqliteTransaction

    if "://" in options.store:
        import asyncio

        return asyncio.run(_dump_shared(options))
    damage = None
    with inspection.reading(Path(options.store)) as connection:
        known = inspection.shards(connection)
        _check_shard(options.shard, known)
        for shard in known:
            if options.shard in (None, shard):
                try:
                    _print(shard, read_shard(SqliteTransaction(connection), shard), options)
                except Damaged as error:
                    damage = damage or error  # Other shards may be readable.
    if damage is not None:
        raise Damaged(f"{options.store}: {damage}; {ADVICE}") from damage
    return DONE


async def _dump_shared(options: argparse.Namespace) -> int:
    from coordinator.core.values.ids import ShardId
    from coordinator.runtime.stores import open_to_read
    from coordinator.settings.sources import Sources, load

    settings, _ = load(Sources(flags={"store": options.store}, environment=os.environ, file=None))
    log, shards = await open_to_read(settings.storage)
    try:
        _check_shard(options.shard, range(shards))
        for shard in map(ShardId, range(shards)):
            if options.shard in (None, shard):
                _print(shard, await log.read(shard), options)
    finally:
        await log.close()
    return DONE


def _check_shard(wanted: int | None, known: Sequence[int]) -> None:
    if wanted is not None and wanted not in known:
        from coordinator.cli.refusals import not_there

        raise LookupError(not_there("shard", wanted, known))


def _print(shard: ShardId, loaded: Loaded, options: argparse.Namespace) -> None:
    from coordinator.runtime import codec

    render = RENDERERS[options.output]
    for where, record in codec.located(shard, loaded):
        if options.group in (None, record.group_id):
            print(render({**where, **_fields(record)}))


def _line(fields: dict[str, Any]) -> str:
    """A record for people: shard, position, kind and group, then its other fields."""
    shard, record, group = (fields.pop(key) for key in ("shard", "record", "group_id"))
    text = " ".join(f"{key}={as_json(value)}" for key, value in fields.items())
    return printable(f"{shard}  {record}  {group}  {text}", None)


RENDERERS: dict[str, Callable[[dict[str, Any]], str]] = {
    "table": _line,
    "json": as_json,
    "yaml": lambda fields: as_yaml([fields]),
}
"""One record at a time: a store may hold more of them than memory does."""


def _fields(record: Record) -> dict[str, Any]:
    return {"record": type(record).__name__, **_plain(asdict(record))}


def _plain(value: Any) -> Any:
    """A value as JSON can hold it: bytes become base64."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value


def _verify(options: argparse.Namespace) -> int:
    from coordinator.runtime import codec
    from coordinator.storage import inspection

    reports: list[ShardReport] = []

    def verified() -> Output:
        reports.extend(inspection.verify(options.data_dir, codec.decode))
        rows = [
            VerifiedShard(
                **{**asdict(report), "problem": report.problem or None}, ok=not report.problem
            )
            for report in reports
        ]
        summary = f"{len(rows)} shards, {sum(report.records for report in reports)} records"
        sound = f"{options.data_dir} is sound: {summary}."
        return Output(
            VerifiedShard,
            rows,
            empty=f"{options.data_dir} is sound, and nothing was ever written to it.",
            notes=[sound] if rows and _is_sound(reports) else [],
            has_failed=not _is_sound(reports),
        )

    status = show(options, verified)
    _name_problems(options.data_dir, reports)
    return status


def _is_sound(reports: Sequence[ShardReport]) -> bool:
    return not any(report.problem for report in reports)


def _name_problems(folder: Path, reports: Sequence[ShardReport]) -> None:
    from coordinator.storage.soundness import ADVICE

    if problems := "; ".join(report.problem for report in reports if report.problem):
        complain(f"{folder}: {problems}; {ADVICE}")


def _backup(options: argparse.Namespace) -> int:
    from coordinator.runtime import codec
    from coordinator.storage import inspection

    reports: list[ShardReport] = []

    def backed_up() -> Output:
        size = inspection.backup(options.data_dir, options.target)
        reports.extend(inspection.verify(options.target, codec.decode))
        row = Backup(
            backup=str(options.target),
            bytes=size,
            shards=len(reports),
            records=sum(report.records for report in reports),
            ok=_is_sound(reports),
        )
        return Output(Backup, [row], has_failed=not row.ok)

    status = show(options, backed_up)
    _name_problems(options.target, reports)
    return status
