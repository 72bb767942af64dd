"""Mappings by name: nothing is forgotten on either side, and facts are said once."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from coordinator.durable.v1 import records_pb2 as pb
from coordinator.runtime.field_mapping import Differs, Mappings, distances, ranges

MAPPINGS = Mappings({})


@dataclass(frozen=True)
class Less:
    group_id: str


@dataclass(frozen=True)
class More:
    group_id: str
    name: str
    weight: int


@dataclass(frozen=True)
class Kept:
    group_id: str
    title: str


@pytest.mark.parametrize(("kind", "field"), [(Less, "name"), (More, "weight")])
def test_a_field_without_a_counterpart_is_refused(kind, field):
    with pytest.raises(TypeError, match=f"no counterpart of {field}"):
        MAPPINGS.between(kind, pb.ReservationFreed.DESCRIPTOR)


def test_a_field_of_another_name_is_an_exception():
    mappings = Mappings({Kept: {"title": Differs("name", str.upper, str.lower)}})
    mapped = mappings.between(Kept, pb.ReservationFreed.DESCRIPTOR)
    assert mapped.fields(Kept("g", "w-a")) == {"name": "W-A"}
    assert mapped.value(pb.ReservationFreed(name="W-A"), "g") == Kept("g", "w-a")


def test_a_projection_says_what_the_message_has():
    assert MAPPINGS.projection(More, pb.ReservationFreed.DESCRIPTOR)(More("g", "w", 3)) == {
        "name": "w"
    }


def test_half_a_range_is_refused():
    assert ranges(distances([(3, 5), (9, 9)])) == ((3, 5), (9, 9))
    with pytest.raises(ValueError, match="shorter"):
        ranges([3, 2, 4])
