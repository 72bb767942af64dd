"""What a shared store says of itself: the format of its entries, and its number of shards."""

from __future__ import annotations

import json

from coordinator.storage.log import CannotOpen

FORMAT = 1


def new_meta(shards: int) -> bytes:
    """Of a store that is made now."""
    return json.dumps({"format": FORMAT, "shards": shards}).encode()


def shards_of(meta: bytes | None, wanted: int | None) -> int:
    """The number of shards of a store.

    Args:
        meta: what it says; None: there is no store.
        wanted: how many there should be; None: it is only read, and may have any.
    Raises:
        CannotOpen: there is none, a newer version has made it, or it has another number.
    """
    if meta is None:
        raise CannotOpen("there is no store of this name")
    found = json.loads(meta)
    if found["format"] > FORMAT:
        raise CannotOpen(
            f"the store has format {found['format']}, and this version reads up to {FORMAT}: "
            "a newer version has written it. Run that version"
        )
    if wanted not in (None, found["shards"]):
        raise CannotOpen(
            f"the store was made for {found['shards']} shards, which cannot change: "
            "set shards to that"
        )
    shards: int = found["shards"]
    return shards
