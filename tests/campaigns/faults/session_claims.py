"""Claims about session groups, checked against what workers noted and a sink has taken.

Pure: it knows neither processes nor the coordinator.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

Note = Mapping[str, Any]  # Any: JSON.
Effect = tuple[int, int, int, int]
"""Partition, token, position, process; in the order in which the sink has taken them."""


def problems(
    notes: Sequence[Note], effects: Sequence[Effect], committed: Mapping[int, int]
) -> Iterator[str]:
    """Yield a sentence for each claim that does not hold.

    Args:
        committed: the last offset of each partition, as the coordinator tells it at the end.
    """
    yield from _overlaps(effects)
    yield from _owners(notes)
    yield from _lost_commits(notes, committed)
    yield from _skipped(effects, committed)
    yield from _commits_of_former_holders(notes)


def _overlaps(effects: Iterable[Effect]) -> Iterator[str]:
    """The sink takes nothing of a holder once it has taken something of the next one."""
    newest: dict[int, tuple[int, int]] = {}
    for partition, token, _, pid in effects:
        known, of = newest.get(partition, (0, 0))
        if token < known:
            yield f"partition {partition}: {pid} wrote under {token} after {of} under {known}"
        elif token == known and pid != of:
            yield f"partition {partition}: {pid} and {of} wrote under the same token {token}"
        newest[partition] = token, pid


def _owners(notes: Iterable[Note]) -> Iterator[str]:
    """A token of a partition is granted to one process, once."""
    granted: dict[tuple[int, int], int] = {}
    for note in notes:
        if note["op"] == "granted":
            key = note["p"], note["token"]
            if key in granted:
                yield f"partition {key[0]}: token {key[1]} was granted twice"
            granted[key] = note["pid"]


def _lost_commits(notes: Sequence[Note], committed: Mapping[int, int]) -> Iterator[str]:
    """An acknowledged commit is what every later holder begins at, or is exceeded."""
    acknowledged: dict[int, dict[int, int]] = {}
    for note in notes:
        if note["op"] == "committed":
            by_token = acknowledged.setdefault(note["p"], {})
            by_token[note["token"]] = max(note["offset"], by_token.get(note["token"], 0))
    for note in notes:
        if note["op"] == "granted":
            earlier = [
                offset
                for token, offset in acknowledged.get(note["p"], {}).items()
                if token < note["token"]
            ]
            if max(earlier, default=0) > max(note["offset"], 0):
                yield (
                    f"partition {note['p']}: {note['offset']} was told with token {note['token']}, "
                    f"and {max(earlier)} was acknowledged before"
                )
    for partition, by_token in acknowledged.items():
        last, left = max(by_token.values()), committed.get(partition, 0)
        if left < last:
            yield f"partition {partition}: {last} was acknowledged, and {left} is left"


def _skipped(effects: Iterable[Effect], committed: Mapping[int, int]) -> Iterator[str]:
    """Work is at-least-once: all positions up to a committed one were done."""
    done: dict[int, set[int]] = {}
    for partition, _, position, _ in effects:
        done.setdefault(partition, set()).add(position)
    for partition, offset in committed.items():
        if missing := set(range(1, offset + 1)) - done.get(partition, set()):
            yield f"partition {partition}: {offset} is committed, and {min(missing)} was never done"


def _commits_of_former_holders(notes: Iterable[Note]) -> Iterator[str]:
    """No commit is accepted of a worker that the sink has refused before for its token."""
    fenced: set[tuple[int, int]] = set()
    for note in notes:
        if note["op"] == "refused":
            fenced.add((note["p"], note["token"]))
        elif note["op"] == "committed" and (note["p"], note["token"]) in fenced:
            yield f"partition {note['p']}: a commit under {note['token']} came after a later grant"


def refused(notes: Iterable[Note]) -> int:
    """Effects of workers that were no holder any more, which the sink has refused."""
    return sum(note["op"] == "refused" for note in notes)


def overlaps_in_time(notes: Iterable[Note], besides: Container[int] = ()) -> int:
    """Effects that a worker has begun although the next holder had begun one before.

    A sink that does not check tokens takes them. They come of a worker that stands still between
    its check and its effect.

    Args:
        besides: processes whose effects are not counted.
    """
    newest: dict[int, int] = {}
    found = 0
    for note in sorted(notes, key=lambda each: each["at"]):
        if note["op"] == "tried":
            late = note["token"] < newest.get(note["p"], 0)
            found += late and note["pid"] not in besides
            newest[note["p"]] = max(note["token"], newest.get(note["p"], 0))
    return found


def longest_idle_s(notes: Iterable[Note], since_s: float, partitions: int) -> float | None:
    """Longest time for which a partition was not worked on; None: one has not been worked on yet.

    Args:
        since_s: idle times count from here.
    """
    last: dict[int, float] = {}
    longest_s = 0.0
    for note in sorted(notes, key=lambda each: each["at"]):
        if note["op"] == "taken" and note["at"] >= since_s:
            longest_s = max(longest_s, note["at"] - last.get(note["p"], since_s))
            last[note["p"]] = note["at"]
    return longest_s if len(last) == partitions else None


def moves(notes: Iterable[Note]) -> int:
    """Grants of partitions that had been granted before: what faults have set in motion."""
    granted = [note["p"] for note in notes if note["op"] == "granted"]
    return len(granted) - len(set(granted))
