"""A folder that nodes of one machine divide: served as it was made, whatever else is in it."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from coordinator.runtime.stores import open_stores
from coordinator.settings.sections import StorageConfig
from coordinator.storage.folder import DATABASE
from coordinator.storage.log import CannotOpen, Damaged
from coordinator.storage.marker import MARKER
from coordinator.storage.shares import NODES, check_folder, share_folder


def start(folder: Path, share: str = "") -> None:
    """Open and close a store, as a node does."""

    async def once() -> None:
        stores = await open_stores(StorageConfig(data_dir=str(folder), share=share, shards=4))
        await stores.log.close()

    asyncio.run(once())


def divide(folder: Path, nodes: int) -> None:
    for number in range(1, nodes + 1):
        start(share_folder(folder, (number, nodes)), f"{number}/{nodes}")


def refused(folder: Path, nodes: int) -> str:
    with pytest.raises(CannotOpen) as error:
        check_folder(folder, nodes=nodes)
    return str(error.value)


def test_a_divided_folder_is_served_by_as_many_nodes_only(tmp_path):
    divide(tmp_path, 2)
    assert check_folder(tmp_path, nodes=2) == []
    assert "was made for 2 nodes, not 3: start with --nodes 2" in refused(tmp_path, 3)
    assert "was made for 2 nodes, not 1: start with --nodes 2" in refused(tmp_path, 1)
    with pytest.raises(CannotOpen, match="start with --nodes 2"):
        start(tmp_path)


def test_an_undivided_folder_is_not_divided(tmp_path):
    start(tmp_path)
    assert check_folder(tmp_path, nodes=1) == []
    assert "was made for 1 nodes, not 2: start with --nodes 1" in refused(tmp_path, 2)


def stray(folder: Path) -> None:
    """A store in a divided folder, made before anybody looked."""
    start(folder / "aside")
    for path in (folder / "aside").iterdir():
        path.rename(folder / path.name)


def test_a_stray_store_does_not_lock_the_shares_out(tmp_path):
    divide(tmp_path, 2)
    stray(tmp_path)
    (message,) = check_folder(tmp_path, nodes=2)
    assert f"{tmp_path / DATABASE} is another store, which --nodes 2 does not serve" in message
    assert "move coordinator.sqlite3* and coordinator.store to another folder" in message
    words = refused(tmp_path, 1)
    assert "start with --nodes 2" in words
    assert "move coordinator.sqlite3* and coordinator.store to another folder" in words
    divide(tmp_path, 2)  # As its nodes are started.


def test_stray_shares_do_not_lock_out_the_others(tmp_path):
    divide(tmp_path, 2)
    divide(tmp_path, 3)
    (message,) = check_folder(tmp_path, nodes=2)
    assert "share-1-of-3 and its like are other stores" in message
    (message,) = check_folder(tmp_path, nodes=3)
    assert "share-1-of-2 and its like are other stores" in message
    assert "--nodes" in refused(tmp_path, 1)


def test_empty_folders_of_shares_lock_nobody_out_of_a_store(tmp_path):
    start(tmp_path)
    share_folder(tmp_path, (1, 2)).mkdir()
    assert check_folder(tmp_path, nodes=1) == []
    start(tmp_path)


def test_an_interrupted_first_start_is_begun_again(tmp_path):
    start(share_folder(tmp_path, (1, 2)), "1/2")
    assert check_folder(tmp_path, nodes=2) == []
    divide(tmp_path, 2)


@pytest.mark.parametrize("lost", ["the folder", "what is in it"])
def test_a_share_that_is_gone_is_not_begun_anew(tmp_path, lost):
    divide(tmp_path, 2)
    assert (tmp_path / NODES).read_text() == "2\n"
    folder = share_folder(tmp_path, (2, 2))
    shutil.rmtree(folder)
    if lost == "what is in it":
        folder.mkdir()
    assert check_folder(tmp_path, nodes=2) == []
    with pytest.raises(Damaged, match="share-2-of-2 is missing, and it has been used"):
        start(folder, "2/2")


def test_all_shares_gone_are_noticed_too(tmp_path):
    divide(tmp_path, 2)
    for number in (1, 2):
        shutil.rmtree(share_folder(tmp_path, (number, 2)))
    assert "made for 2 nodes, not 1" in refused(tmp_path, 1)
    with pytest.raises(Damaged, match="it has been used"):
        start(share_folder(tmp_path, (1, 2)), "1/2")


@pytest.mark.parametrize("marker", ["with", "without"])
@pytest.mark.parametrize("share", ["", "2/2", "1/3"])
def test_a_share_is_not_served_as_something_else(tmp_path, share, marker):
    divide(tmp_path, 2)
    folder = share_folder(tmp_path, (1, 2))
    if marker == "without":
        (folder / MARKER).unlink()
    with pytest.raises(CannotOpen, match=r"share 1 of 2, and not .*--nodes 2.*--share 1/2"):
        start(folder, share)
    start(folder, "1/2")


@pytest.mark.parametrize("share", ["1/2", "2/2", "1/3"])
def test_a_share_is_not_begun_in_the_folder_above_the_shares(tmp_path, share):
    divide(tmp_path, 2)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CannotOpen, match=r"--nodes 2, or .* --data-dir .*share-[12]-of-2"):
        start(tmp_path, share)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_share_that_is_moved_goes_on_working(tmp_path):
    divide(tmp_path / "a", 2)
    (tmp_path / "a").rename(tmp_path / "b")
    divide(tmp_path / "b", 2)
    share_folder(tmp_path / "b", (1, 2)).rename(tmp_path / "one")
    start(tmp_path / "one", "1/2")
