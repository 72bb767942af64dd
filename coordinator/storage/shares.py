"""A data folder that the nodes of one machine divide: in it a data folder for each share.

share-1-of-2, share-2-of-2    the data folders
coordinator.nodes             the number of nodes, once each of them has its store
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from coordinator.storage.folder import DATABASE
from coordinator.storage.log import CannotOpen, Damaged
from coordinator.storage.marker import MARKER, share_in_words, sync_folder
from coordinator.storage.soundness import ADVICE

NODES = "coordinator.nodes"
_SHARE = re.compile(r"share-([1-9]\d*)-of-([1-9]\d*)")


def share_folder(folder: Path, share: tuple[int, int]) -> Path:
    """Where the K-th of N shares is in a folder that is divided."""
    number, nodes = share
    return folder / f"share-{number}-of-{nodes}"


def check_folder(folder: Path, *, nodes: int) -> list[str]:
    """A folder that was divided is not served undivided, nor among another number of nodes.

    Where there are stores of both kinds, `--nodes N` serves the shares of N nodes and lets the
    others be. A node without `--nodes` serves none: whoever forgets the flag would find an old
    store instead of the groups.

    Args:
        nodes: the folder is to be served by so many; 1: undivided.
    Returns:
        What else is there and is not served, in words.
    Raises:
        CannotOpen: it holds groups that would not be seen.
    """
    used, begun = _divisions(folder)
    others = used - {nodes}
    if nodes not in used:
        others |= begun - {nodes}
    if not others:
        return []
    if nodes > 1 and nodes in used:
        return [_aside(folder, other, f"--nodes {nodes}") for other in sorted(others)]
    made_for = max(others)
    start = f"start with --nodes {made_for}, or in another folder"
    if used > {made_for}:
        left = (_aside(folder, other, f"--nodes {made_for}") for other in sorted(used - {made_for}))
        start = "; ".join((start, *left))
    raise CannotOpen(f"{folder} was made for {made_for} nodes, not {nodes}: {start}")


def check_share(folder: Path, share: tuple[int, int]) -> None:
    """The folder of a share is served as that share, and not begun anew if it is gone.

    Raises:
        CannotOpen: its name is that of another share.
        Damaged: there was a store.
    """
    found = _SHARE.fullmatch(folder.name)
    if found is None:
        return
    named = (int(found[1]), int(found[2]))
    is_used = _is_used(folder)
    # A folder with a marker says itself what it has, whatever its name is.
    if named != share and not os.path.lexists(folder / MARKER):
        raise CannotOpen(
            f"{folder} has {share_in_words(named)}, and not {share_in_words(share)}: start "
            f"{folder.parent} with --nodes {named[1]}, or this one alone with --share "
            f"{named[0]}/{named[1]}"
        )
    if named == share and not is_used and _nodes_of(folder.parent) == named[1]:
        raise Damaged(f"the store of {folder} is missing, and it has been used; {ADVICE}")


def note_complete(folder: Path, share: tuple[int, int]) -> None:
    """Note in the folder above that all shares have their stores, once the last one has."""
    above, (number, nodes) = folder.parent, share
    shares = [share_folder(above, (k, nodes)) for k in range(1, nodes + 1)]
    if folder not in shares or _nodes_of(above) == nodes:
        return
    if all((each / MARKER).is_file() for each in shares):
        new = above / f"{NODES}.new-{number}"
        # Without the note everything works; only the loss of a whole share goes unnoticed.
        with contextlib.suppress(OSError):
            new.write_text(f"{nodes}\n")
            new.replace(above / NODES)
            sync_folder(above)


def _divisions(folder: Path) -> tuple[set[int], set[int]]:
    """Among how many nodes a folder is divided: with stores, and with empty folders."""
    used = {1} if _is_used(folder) else set()
    begun: set[int] = set()
    for path in folder.glob("share-*-of-*"):
        if found := _SHARE.fullmatch(path.name):
            (used if _is_used(path) else begun).add(int(found[2]))
    nodes = _nodes_of(folder)
    return used if nodes is None else used | {nodes}, begun


def _is_used(folder: Path) -> bool:
    return any(os.path.lexists(folder / name) for name in (DATABASE, MARKER))


def _nodes_of(folder: Path) -> int | None:
    try:
        return int((folder / NODES).read_text())
    except (OSError, ValueError):
        return None


def _aside(folder: Path, nodes: int, served: str) -> str:
    if nodes == 1:
        what, name = f"{folder / DATABASE} is another store", f"{DATABASE}* and {MARKER}"
    else:
        what = f"{share_folder(folder, (1, nodes))} and its like are other stores"
        name = f"share-*-of-{nodes}"
    return f"{what}, which {served} does not serve; to look at it, move {name} to another folder"
