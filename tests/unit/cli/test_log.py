"""`coordinator log` on a live and on a stopped folder."""

from __future__ import annotations

import json
import sqlite3

import pytest

from coordinator.cli.main import main
from coordinator.core.values.ids import ShardId
from coordinator.core.values.records import GroupMetadata, MemberRecord, OffsetCommitted
from coordinator.runtime import codec
from coordinator.storage.folder import DATABASE
from coordinator.storage.log import Entry, ShardSnapshot
from tests.unit.storage.conftest import opened

OFFSET = OffsetCommitted("g", "t", 0, 11, committed_at_ms=5)
MEMBER = MemberRecord("m", None, "c", "/h", 500, 500, b"\x00\xff", b"a")
GROUP = GroupMetadata("h", 1, "consumer", "range", "m", 7, (MEMBER,))


async def fill(log) -> None:
    fence = await log.fence(ShardId(0))
    await log.append(fence, Entry(1, 1, 0, (codec.encode(OFFSET), codec.encode(GROUP))))
    other = await log.fence(ShardId(3))
    await log.append(other, Entry(1, 1, 0, (codec.encode(OFFSET),)))
    await log.write_snapshot(other, ShardSnapshot(1, 1, [codec.encode(OFFSET)]))


def lines(capsys) -> list[dict]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("live", [True, False])
async def test_dump_verify_and_backup(tmp_path, capsys, live):
    folder, copy = str(tmp_path / "data"), str(tmp_path / "copy")
    async with opened(tmp_path / "data") as log:
        await fill(log)
        if live:
            look(folder, copy, capsys)
    if not live:
        look(folder, copy, capsys)


def look(folder: str, copy: str, capsys) -> None:
    assert main(["log", "dump", folder]) == 0
    first, second, third = lines(capsys)
    assert first == {
        "shard": 0, "sequence": 1, "epoch": 1, "log_offset": 0, "record": "OffsetCommitted",
        "group_id": "g", "topic": "t", "partition": 0, "offset": 11, "leader_epoch": -1,
        "metadata": "", "committed_at_ms": 5, "expires_at_ms": None,
    }  # fmt: skip
    assert second["members"][0]["metadata"] == "AP8="
    assert (third["shard"], third["snapshot"]) == (3, 1)
    assert main(["log", "dump", folder, "--group", "h"]) == 0
    assert [line["group_id"] for line in lines(capsys)] == ["h"]
    assert main(["log", "dump", folder, "--shard", "3"]) == 0
    assert [line["shard"] for line in lines(capsys)] == [3]

    assert main(["log", "verify", folder, "-o", "json"]) == 0
    reports = json.loads(capsys.readouterr().out)
    assert all(report["ok"] and report["problem"] is None for report in reports)
    assert main(["log", "verify", folder]) == 0
    assert capsys.readouterr().err == f"{folder} is sound: 2 shards, 3 records.\n"
    assert [(r["shard"], r["sequence"], r["entries"], r["records"]) for r in reports] == [
        (0, 1, 1, 2),
        (3, 1, 0, 1),
    ]

    assert main(["log", "backup", folder, copy, "-o", "json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)
    assert (said["ok"], said["records"], said["shards"]) == (True, 3, 2)
    assert main(["log", "dump", copy]) == 0
    assert lines(capsys) == [first, second, third]
    assert main(["log", "backup", folder, copy]) == 1
    assert "already" in capsys.readouterr().err


async def test_a_backup_can_be_served_from(tmp_path):
    async with opened(tmp_path / "data") as log:
        await fill(log)
        assert main(["log", "backup", str(tmp_path / "data"), str(tmp_path / "copy")]) == 0
    async with opened(tmp_path / "copy") as log:
        loaded = await log.load(await log.fence(ShardId(0)))
        assert [codec.decode(record) for record in loaded.records()] == [OFFSET, GROUP]


async def test_damage_is_found_and_named(tmp_path, capsys):
    async with opened(tmp_path) as log:
        await fill(log)
    with sqlite3.connect(tmp_path / DATABASE) as connection:
        connection.execute("UPDATE entry SET frame = zeroblob(9)")
    connection.close()
    assert main(["log", "verify", str(tmp_path), "-o", "json"]) == 1
    output = capsys.readouterr()
    damaged, sound = json.loads(output.out)
    assert (damaged["ok"], sound["ok"], sound["problem"]) == (False, True, None)
    assert "shard 0, entry 1" in damaged["problem"]
    assert output.err.startswith(f"coordinator: {tmp_path}: ")
    assert main(["log", "dump", str(tmp_path)]) == 1
    assert "shard 0, entry 1" in capsys.readouterr().err


async def test_a_damaged_page_is_found(tmp_path, capsys):
    async with opened(tmp_path) as log:
        await fill(log)
    path = tmp_path / DATABASE
    data = bytearray(path.read_bytes())
    data[4096 + 3 : 4096 + 60] = b"\xee" * 57
    path.write_bytes(data)
    assert main(["log", "verify", str(tmp_path)]) == 1


def test_a_folder_without_a_store_is_named(tmp_path, capsys):
    assert main(["log", "dump", str(tmp_path)]) == 1
    assert f"there is no {tmp_path / DATABASE}" in capsys.readouterr().err
