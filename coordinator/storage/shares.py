"""A data folder divided among the nodes of one machine, with a data folder for each share.

share-1-of-2, share-2-of-2    the data folders
coordinator.nodes             the number of nodes, written once each of them has its store
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
    """Path of the K-th of N shares in a divided folder."""
    number, nodes = share
    return folder / f"share-{number}-of-{nodes}"


def check_folder(folder: Path, *, nodes: int) -> list[str]:
    """Refuse to serve a divided folder undivided, or among another number of nodes.

    If the folder has stores of several divisions, `--nodes N` serves the shares of N nodes and
    leaves the others alone. A node without `--nodes` serves none of them: if the flag was
    forgotten, it would serve an old store instead of the groups.

    Args:
        nodes: number of nodes that are to serve the folder; 1: undivided.
    Returns:
        The other stores of the folder, which are not served, in words.
    Raises:
        CannotOpen: the folder holds groups that would not be served.
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
    """Refuse to serve the folder of another share, or to recreate one that has disappeared.

    Raises:
        CannotOpen: the folder's name is that of another share, or it is one that holds shares.
        Damaged: the folder had a store.
    """
    match = _SHARE.fullmatch(folder.name)
    if match is None:
        _check_undivided(folder, share)
        return
    named = (int(match[1]), int(match[2]))
    is_used = _is_used(folder)
    # The marker of a folder outranks its name.
    if named != share and not os.path.lexists(folder / MARKER):
        raise CannotOpen(
            f"{folder} has {share_in_words(named)}, and not {share_in_words(share)}: start "
            f"{folder.parent} with --nodes {named[1]}, or this one alone with --share "
            f"{named[0]}/{named[1]}"
        )
    if named == share and not is_used and _nodes_of(folder.parent) == named[1]:
        raise Damaged(f"the store of {folder} is missing, and it has been used; {ADVICE}")


def _check_undivided(folder: Path, share: tuple[int, int]) -> None:
    """Refuse to begin a share in the folder above the shares, where it would be a new store."""
    used, _ = _divisions(folder)
    if share[1] > 1 and used and not _is_used(folder):
        nodes = max(used)
        one = share_folder(folder, (min(share[0], nodes), nodes))
        raise CannotOpen(
            f"{folder} is divided among {nodes} nodes, and --share {share[0]}/{share[1]} would "
            f"begin a new store beside theirs: start it with --nodes {nodes}, or a share alone "
            f"with its own folder, as --data-dir {one}"
        )


def note_complete(folder: Path, share: tuple[int, int]) -> None:
    """Write coordinator.nodes in the folder above, once all shares have their stores."""
    above, (number, nodes) = folder.parent, share
    shares = [share_folder(above, (k, nodes)) for k in range(1, nodes + 1)]
    if folder not in shares or _nodes_of(above) == nodes:
        return
    if all((one_share / MARKER).is_file() for one_share in shares):
        new = above / f"{NODES}.new-{number}"
        # Without the file only the loss of a whole share goes unnoticed.
        with contextlib.suppress(OSError):
            new.write_text(f"{nodes}\n")
            new.replace(above / NODES)
            sync_folder(above)


def _divisions(folder: Path) -> tuple[set[int], set[int]]:
    """Numbers of nodes by which a folder is divided: with stores, and with empty folders."""
    used = {1} if _is_used(folder) else set()
    begun: set[int] = set()
    for path in folder.glob("share-*-of-*"):
        if match := _SHARE.fullmatch(path.name):
            (used if _is_used(path) else begun).add(int(match[2]))
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
        reason, name = f"{folder / DATABASE} is another store", f"{DATABASE}* and {MARKER}"
    else:
        reason = f"{share_folder(folder, (1, nodes))} and its like are other stores"
        name = f"share-*-of-{nodes}"
    return f"{reason}, which {served} does not serve; to look at it, move {name} to another folder"
