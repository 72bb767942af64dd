"""Memory that a group gives back: what it knows of partitions that nobody declares any more."""

from __future__ import annotations

from typing import Any

from coordinator.core.ids import Place
from coordinator.core.sessions.group import SessionGroup


def give_back(group: SessionGroup) -> None:
    """Give back the rows of partitions that nobody declares, holds or keeps any more.

    Nothing may be in flight: a record on its way may name such a partition. Delays after an end
    without consent stay: who declares the partition next has to wait as well.
    """
    shrunk, group.declarations.shrunk = group.declarations.shrunk, set()
    for name in shrunk:
        topic = group.topics.get(name)
        if topic is not None and not topic.trim(group.count_of(name)):
            del group.topics[name]
    if shrunk:
        tables: tuple[dict[Place, Any], ...] = (
            group.refusals,
            group.backed_off,
            group.rests,
            group.targets,
        )
        for table in tables:
            for place in [place for place in table if not _exists(group, place)]:
                del table[place]
        for key in [key for key in group.back_offs if not _exists(group, key[0])]:
            del group.back_offs[key]


def _exists(group: SessionGroup, place: Place) -> bool:
    topic = group.topics.get(place[0])
    return topic is not None and place[1] < len(topic.holders)
