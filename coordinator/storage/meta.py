"""Metadata of a shared store: the format of its entries, and its number of shards."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from coordinator.storage.log import CannotOpen
from coordinator.typed_json import parse_dataclass

FORMAT = 1


@dataclass(frozen=True, slots=True)
class _Meta:
    format: int
    shards: int


def new_meta(shards: int) -> bytes:
    """Metadata of a new store."""
    return json.dumps(asdict(_Meta(FORMAT, shards))).encode()


def shards_of(meta: bytes | None, wanted: int | None) -> int:
    """Check a store's metadata, and return its number of shards.

    Args:
        meta: the stored metadata; None: there is no store.
        wanted: expected number of shards; None: any.
    Raises:
        CannotOpen: there is no store, a newer version made it, or it has another number.
    """
    if meta is None:
        raise CannotOpen("there is no store of this name")
    try:
        stored = json.loads(meta)  # A newer version may say more.
        parsed = parse_dataclass(_Meta, {name: stored[name] for name in ("format", "shards")})
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CannotOpen(f"what the store says of itself cannot be read: {error}") from error
    if parsed.format > FORMAT:
        raise CannotOpen(
            f"the store has format {parsed.format}, and this version reads up to {FORMAT}: "
            "a newer version has written it. Run that version"
        )
    if wanted not in (None, parsed.shards):
        raise CannotOpen(
            f"the store was made for {parsed.shards} shards, which cannot change: set shards to "
            "that"
        )
    if parsed.shards < 1:
        raise CannotOpen(f"the store says that it was made for {parsed.shards} shards")
    return parsed.shards
