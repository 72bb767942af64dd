"""`coordinator log`: dump a data folder as lines of JSON, verify it, or back it up.

Read-only; works whether a coordinator is running on the folder or not.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from coordinator.cli.formats import as_json
from coordinator.cli.output import FAILED, complain
from coordinator.core.ids import ShardId
from coordinator.core.records import Record
from coordinator.runtime import codec
from coordinator.runtime.stores import open_to_read
from coordinator.settings import InvalidSetting
from coordinator.settings.sources import Sources, load
from coordinator.storage import inspection
from coordinator.storage.inspection import ShardReport
from coordinator.storage.log import CannotOpen, Damaged, Loaded, LogError
from coordinator.storage.soundness import ADVICE
from coordinator.storage.sqlite import read_shard


def add_parsers(parser: argparse.ArgumentParser) -> None:
    """The actions and their flags."""
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    for name, text, action in (
        ("dump", "print every record as a line of JSON", _dump),
        ("verify", "read and check every entry; exit status 1 if something is wrong", _verify),
        ("backup", "make a consistent copy, also while the coordinator runs", _backup),
    ):
        command = actions.add_parser(name, help=text, description=text)
        command.set_defaults(run=_run, action=action)
        if name == "dump":
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
    try:
        status: int = options.action(options)
    except (CannotOpen, Damaged, InvalidSetting, LogError) as error:
        complain(error)
        return FAILED
    return status


def _dump(options: argparse.Namespace) -> int:
    if "://" in options.store:
        return asyncio.run(_dump_shared(options))
    damage = None
    with inspection.reading(Path(options.store)) as connection:
        for shard in inspection.shards(connection):
            if options.shard in (None, shard):
                try:
                    _print(shard, read_shard(connection, shard), options)
                except Damaged as error:
                    damage = damage or error  # Other shards may be readable.
    if damage is not None:
        raise Damaged(f"{options.store}: {damage}; {ADVICE}") from damage
    return 0


async def _dump_shared(options: argparse.Namespace) -> int:
    settings, _ = load(Sources(flags={"store": options.store}, environment=os.environ, file=None))
    log, shards = await open_to_read(settings.storage)
    try:
        for shard in map(ShardId, range(shards)):
            if options.shard in (None, shard):
                _print(shard, await log.read(shard), options)
    finally:
        await log.close()
    return 0


def _print(shard: ShardId, found: Loaded, options: argparse.Namespace) -> None:
    for where, record in codec.located(shard, found):
        if options.group in (None, record.group_id):
            print(as_json({**where, **_fields(record)}))


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
    reports = []
    try:
        for report in inspection.verify(options.data_dir, codec.decode):
            reports.append(report)
            print(as_json({**asdict(report), "ok": not report.problem}))
    except (CannotOpen, Damaged):
        print(as_json({"ok": False}))
        raise
    print(as_json({"ok": _is_sound(reports)}))
    return _status(options.data_dir, reports)


def _is_sound(reports: Sequence[ShardReport]) -> bool:
    return not any(report.problem for report in reports)


def _status(folder: Path, reports: Sequence[ShardReport]) -> int:
    """Exit status 0 if all shards are sound; else raises `Damaged`, which names all problems."""
    if _is_sound(reports):
        return 0
    problems = "; ".join(report.problem for report in reports if report.problem)
    raise Damaged(f"{folder}: {problems}; {ADVICE}")


def _backup(options: argparse.Namespace) -> int:
    size = inspection.backup(options.data_dir, options.target)
    reports = list(inspection.verify(options.target, codec.decode))
    print(
        as_json(
            {
                "backup": str(options.target),
                "bytes": size,
                "shards": len(reports),
                "records": sum(report.records for report in reports),
                "ok": _is_sound(reports),
            }
        )
    )
    return _status(options.target, reports)
