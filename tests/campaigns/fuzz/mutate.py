"""Mutations of bytes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

from hypothesis import strategies as st

INTERESTING = [
    *(
        value.to_bytes(size, "big")
        for size in (1, 2, 4, 8)
        for value in (0, 1, 2 ** (8 * size - 1))
    ),
    *(b"\xff" * size for size in (1, 2, 4, 8)),
    *(b"\x7f" + b"\xff" * (size - 1) for size in (1, 2, 4, 8)),
    *(b'"', b"{", b"}", b"[", b"]", b"=", b":", b"/", b"#", b"\n", b"\r", b"\0", b"\xc3\x28"),
    *(b"null", b"-1", b"1e999", b"9" * 30, "²".encode(), b"\xef\xbb\xbf"),
]
LENGTH_MAX = 4_096


def mutations(seeds: Sequence[bytes], seed: int) -> Iterator[bytes]:
    """Endless inputs, each some steps away from one of the seeds; the same in every run."""
    chance = random.Random(seed)
    while True:
        yield _mutated(seeds, chance)


def near(seeds: Iterable[bytes]) -> st.SearchStrategy[bytes]:
    """Inputs some steps away from one of the seeds, and any others."""
    all_seeds = [*seeds]
    chance = st.randoms(use_true_random=False)
    return st.builds(_mutated, st.just(all_seeds), chance) | st.binary(max_size=200)


def _mutated(seeds: Sequence[bytes], chance: random.Random) -> bytes:
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.choice((0, 1, 1, 2, 3, 8))):
        _step(data, seeds, chance)
    return bytes(data[:LENGTH_MAX])


def _step(data: bytearray, seeds: Sequence[bytes], chance: random.Random) -> None:
    """One change in place."""
    at = chance.randrange(len(data) + 1)
    upto = min(len(data), at + chance.choice((1, 1, 2, 4, 16, 256)))
    match chance.randrange(7):
        case 0 if data:
            data[at % len(data)] ^= 1 << chance.randrange(8)
        case 1:
            data[at:upto] = b""
        case 2:
            data[at:at] = data[at:upto] * chance.choice((1, 2, 50))
        case 3:
            new = chance.choice(INTERESTING)
            data[at : at + len(new)] = new
        case 4:
            data[at:at] = chance.choice(INTERESTING)
        case 5:
            data[at:at] = chance.randbytes(chance.randrange(1, 9))
        case _:
            other = chance.choice(seeds)
            data[at:] = other[chance.randrange(len(other) + 1) :]
