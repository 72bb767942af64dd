"""Validation of members' arguments: taken in their obvious meaning, or refused.

A refusal is a sentence that shows the right form. `TypeError` is for a wrong kind of value,
`ValueError` for a wrong value.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeGuard

from coordinator.assignors import TopicPartition
from coordinator.client.offsets import OffsetAndMetadata
from coordinator.node_source import NodeSource

DEFAULT_PORT = 7400
MOST = (1 << 31) - 1
"""Largest time in milliseconds, and number of partitions, that a message can carry."""
MOST_OFFSET = (1 << 63) - 1
_HOST_PORT = re.compile(r"(\[[^\[\]]+\]|[^:\[\]/\s]+)(?::([0-9]{1,5}))?")
STORES = ("sqlite:", "postgresql:", "postgres:")
"""Schemes of stores that `embedded` takes."""
_GRPC_SCHEMES = ("dns:", "ipv4:", "ipv6:", "unix:", "unix-abstract:", "vsock:", "xds:")


def addresses_of(bootstrap: object) -> list[str]:
    """Bootstrap addresses, HOST:PORT each, from one or several; the port defaults to 7400.

    What finds nodes (`NodeSource`) stands for itself.
    """
    if isinstance(bootstrap, NodeSource):
        return [str(bootstrap)]
    if isinstance(bootstrap, str) and bootstrap.startswith(STORES):
        raise ValueError(
            f"{bootstrap!r} is a store, and no address; give it to Worker(…), or write `with "
            f"embedded({bootstrap!r}) as bootstrap:`, and give that"
        )
    if isinstance(bootstrap, str):
        addresses: list[object] = list(filter(None, re.split(r"[,\s]+", bootstrap)))
    elif _is_host_and_port(bootstrap):
        addresses = [f"{bootstrap[0]}:{bootstrap[1]}"]
    elif isinstance(bootstrap, Iterable) and not isinstance(bootstrap, Mapping | bytes):
        addresses = list(bootstrap)
    else:
        addresses = []
    if not addresses or not all(isinstance(one, str) for one in addresses):
        raise TypeError(
            f"bootstrap is {bootstrap!r}; write an address, 'localhost:7400', or a list of several"
        )
    return [_address(str(one)) for one in addresses]


def _is_host_and_port(value: object) -> TypeGuard[tuple[str, int]]:
    return isinstance(value, tuple) and list(map(type, value)) == [str, int]


def _address(text: str) -> str:
    if text.startswith(_GRPC_SCHEMES):
        return text
    match = _HOST_PORT.fullmatch(text)
    if match is None or not 0 < int(match[2] or DEFAULT_PORT) < 65_536:
        raise ValueError(
            f"{text!r} is no address; write HOST:PORT, 'localhost:7400' or '[::1]:7400', without "
            "http://"
        )
    return f"{match[1]}:{match[2] or DEFAULT_PORT}"


def name_of(name: str, value: object) -> str:
    """A name that must not be empty."""
    if not isinstance(value, str) or not value:
        raise TypeError(f"{name} is {value!r}; write a name, {name}='billing'")
    _check_text(name, value)
    return value


def _check_text(name: str, value: str) -> None:
    """Refuse text that is no UTF-8: file names and arguments of the command line may be none."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} is {value!r}, which is not valid Unicode") from None


def topics_of(topics: object) -> dict[str, int]:
    """Number of partitions by topic."""
    if not isinstance(topics, Mapping):
        names = [topics] if isinstance(topics, str) else topics
        some = [n for n in names if isinstance(n, str)] if isinstance(names, Iterable) else []
        shown = dict.fromkeys(some or ["invoices"], 12)
        raise TypeError(
            f"topics is {topics!r}; write the number of partitions of each: topics={shown}"
        )
    for name, number in topics.items():
        if not isinstance(name, str) or not name or not _is_whole(number):
            raise TypeError(
                f"topics has {name!r}: {number!r}; write a name and its number of partitions: "
                "topics={'invoices': 12}"
            )
        if operator.index(number) < 0:
            raise ValueError(f"topics has {name!r}: {number}; a topic has 0 partitions or more")
        if operator.index(number) > MOST:
            raise ValueError(
                f"topics has {name!r}: {number}; a topic has {MOST} partitions at most"
            )
        _check_text("the name of a topic", name)
    return {name: operator.index(number) for name, number in topics.items()}


def milliseconds_of(name: str, value: object) -> int:
    """A time of at least one millisecond."""
    if not _is_whole(value):
        raise TypeError(f"{name} is {value!r}; write whole milliseconds, 45_000 for 45 s")
    if operator.index(value) < 1:
        raise ValueError(f"{name} is {value}; it is at least 1 ms")
    if operator.index(value) > MOST:
        raise ValueError(f"{name} is {value}; it is at most {MOST} ms, which is 24 days")
    return operator.index(value)


def whole_of(name: str, value: object, least: int = 0, most: int = MOST) -> int:
    """A whole number within bounds."""
    if not _is_whole(value) or operator.index(value) < least:
        raise ValueError(f"{name} is {value!r}; it is a whole number from {least} on")
    if operator.index(value) > most:
        raise ValueError(f"{name} is {value}; it is at most {most}")
    return operator.index(value)


def timeout_ms_of(timeout: object) -> int:
    """Milliseconds of a timeout in seconds."""
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout is {timeout!r}; write seconds, timeout=5.0")
    if not 0 <= timeout < 1e12:
        raise ValueError(f"timeout is {timeout!r}; it is 0 seconds or more")
    return round(timeout * 1000)


def log_ends_returned(name: str, log_ends_given: object) -> dict[TopicPartition, range]:
    """Offsets that logs have, of ends or ranges that a user's function of partitions returned."""
    example = "{partition: 100 for partition in partitions}"
    if not isinstance(log_ends_given, Mapping):
        raise TypeError(
            f"{name} returned {log_ends_given!r}; return offsets by partition: {example}"
        )
    log_ends = {}
    for key, log in log_ends_given.items():
        begin, end = (log.start, log.stop) if isinstance(log, range) else (0, log)
        partition = partition_of(key)
        end = offset_returned(f"{name} for {partition}", end, example)
        log_ends[partition] = range(max(0, begin), end)
    return log_ends


def offset_returned(name: str, end: object, example: str = "100") -> int:
    """Offset that a user's function of one partition returned."""
    offset = number_of(f"the offset that {name} returned", end, example)
    if offset < 0:
        raise ValueError(f"the offset that {name} returned is {offset}; the first row has 0")
    return offset


def partition_of(key: object) -> TopicPartition:
    """A partition, from itself or a pair of topic and number."""
    match key:
        case (str(topic), number) if _is_whole(number):
            if operator.index(number) < 0:
                raise ValueError(f"{key!r} is no partition; they are counted from 0")
            return TopicPartition(topic, operator.index(number))
    raise TypeError(
        f"{key!r} is no partition; write TopicPartition('invoices', 0) or ('invoices', 0)"
    )


def partitions_of(keys: object) -> tuple[TopicPartition, ...]:
    """Several partitions, or one."""
    match keys:
        case (str(), number) if _is_whole(number):
            return (partition_of(keys),)
    if isinstance(keys, str) or not isinstance(keys, Iterable):
        raise TypeError(f"partitions is {keys!r}; write a list: [('invoices', 0), ('invoices', 1)]")
    return tuple(map(partition_of, keys))


def offsets_of(offsets: object) -> dict[TopicPartition, int | OffsetAndMetadata]:
    return {p: offset_of(p, offset) for p, offset in _by_partition("offsets", offsets).items()}


def expected_of(expected: object) -> dict[TopicPartition, int]:
    """Offsets that must be stored; -1: none."""
    offsets = _by_partition("expected", expected)
    return {p: number_of(f"the expected offset of {p}", o) for p, o in offsets.items()}


def manifest_of(manifest: object) -> bytes:
    """The bytes stored with a commit."""
    if not isinstance(manifest, bytes | bytearray | memoryview):
        raise TypeError(f"manifest is {manifest!r}; write bytes, manifest=text.encode()")
    return bytes(manifest)


def _by_partition(name: str, by_partition: object) -> dict[TopicPartition, object]:
    if not isinstance(by_partition, Mapping):
        raise TypeError(
            f"{name} is {by_partition!r}; write {name} by partition: {{('invoices', 0): 100}}"
        )
    return {partition_of(key): value for key, value in by_partition.items()}


def offset_of(partition: TopicPartition, offset: object) -> int | OffsetAndMetadata:
    name = f"the offset of {partition}"
    if not isinstance(offset, OffsetAndMetadata):
        return number_of(name, offset)
    number_of(name, offset.offset)
    if not isinstance(offset.metadata, str):
        raise TypeError(f"the metadata of {partition} is {offset.metadata!r}; write a text")
    _check_text(f"the metadata of {partition}", offset.metadata)
    return offset


def number_of(name: str, value: object, example: str = "{('invoices', 0): 100}") -> int:
    """An offset. `example`: how it is written, for the message."""
    if not _is_whole(value):
        raise TypeError(
            f"{name} is {value!r}; write the next one to read, a whole number: {example}"
        )
    if abs(operator.index(value)) > MOST_OFFSET:
        raise ValueError(f"{name} is {value}; offsets are at most {MOST_OFFSET}")
    return operator.index(value)


def _is_whole(value: object) -> TypeGuard[int]:
    """True of whole numbers of any type (NumPy's too) but bool."""
    return not isinstance(value, bool) and hasattr(value, "__index__")


def names_of(name: str, names: object) -> tuple[str, ...]:
    listed = [names] if isinstance(names, str) else names
    if (
        not isinstance(listed, Sequence)
        or not listed
        or not all(isinstance(n, str) for n in listed)
    ):
        raise TypeError(f"{name} is {names!r}; write names, {name}=['cooperative-sticky']")
    return tuple(listed)
