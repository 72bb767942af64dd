"""Declarations of what commands print: a dataclass per kind of row, a column per field.

`row_of` makes a row of a message, by the names of their fields.

A field's name is its key in JSON and YAML; its type is what is written there (None: null). Its
heading in tables is the name in capitals with dashes, as Kafka's tools write them, unless another
one is given. The page of outputs in the documentation is made of the same declarations.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

ABSENT = "-"
"""Null in a table."""
TONES: Mapping[str, str] = {
    **dict.fromkeys(("Stable", "serving", "SERVING", "done", "yes", "active"), "green"),
    **dict.fromkeys(("Empty", "-"), ""),
    **dict.fromkeys(
        (
            "PreparingRebalance",
            "CompletingRebalance",
            "draining",
            "Assigning",
            "Reconciling",
            "leaving",
            "waiting",
        ),
        "yellow",
    ),
}
"""Colours of states, by the word that a table shows; other words are red."""

Text = Callable[[Any], str]  # Any: the type of the field.


@dataclass(frozen=True, slots=True)
class Column:
    """A field of a row. `heading` None: not in tables. `text`: its form there, if not the usual.

    source: of the field of messages, if it has another name. is_zero_null: 0 says that it is
    unknown, as a negative number always does.
    """

    meaning: str
    heading: str | None
    text: Text | None
    is_state: bool
    source: str = ""
    is_zero_null: bool = False


def column(
    meaning: str,
    heading: str | None = "",
    *,
    text: Text | None = None,
    is_state: bool = False,
    source: str = "",
    is_zero_null: bool = False,
    default: Any = MISSING,
) -> Any:  # Any: what `field` returns.
    """Declare a field of a row.

    Args:
        meaning: one sentence for the documentation: unit, and what null says.
        heading: of the column in tables; empty: made of the name; None: not in tables.
        text: how a table shows the value (default: `cell`).
        is_state: the column is coloured by `TONES`; other words are red.
        source: name of the field of messages, if it is another one.
        is_zero_null: 0 in a message is null.
    """
    metadata = {"column": Column(meaning, heading, text, is_state, source, is_zero_null)}
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Base of rows that say how one of several changes went; one that failed makes exit status 1.

    Its columns come last.
    """

    error: str | None = column(
        "The sentence that says why it was refused; null if it was done.",
        "STATUS",
        text=lambda error: "done" if error is None else str(error),
        is_state=True,
        default=None,
    )
    error_code: str | None = column(
        "Error code of the contract, for example NON_EMPTY_GROUP; null if it was done or the "
        "refusal has no code.",
        None,
        default=None,
    )


def columns_of(kind: type) -> dict[str, Column]:
    """The columns of a kind of row by key, in the order of declaration, those of `Change` last."""
    columns = {field.name: field.metadata["column"] for field in fields(kind)}
    return dict(sorted(columns.items(), key=lambda item: item[0] in Change.__slots__))


def headings_of(kind: type) -> dict[str, str]:
    """The headings of a kind of row by key, without columns that no table shows."""
    return {
        key: column.heading or key.upper().replace("_", "-")
        for key, column in columns_of(kind).items()
        if column.heading is not None
    }


Kind = TypeVar("Kind")
FACTS = "facts"


def row_of(kind: type[Kind], *messages: Any, **facts: Any) -> Kind:
    """A row of what messages and their facts say, the first one before the others.

    An empty text and a negative number are null where the column may be.

    Args:
        facts: values of columns that no message has.
    Raises:
        AttributeError: a column is neither given nor in any message.
    """
    sources = [*messages, *(message.facts for message in messages if hasattr(message, FACTS))]
    hints = _hints_of(cast("Any", kind))
    for key, column in columns_of(kind).items():
        if key not in facts:
            name = column.source or key
            source = next(
                (one_source for one_source in sources if hasattr(one_source, name)), messages[0]
            )
            facts[key] = _value_of(getattr(source, name), column, hints[key])
    return kind(**facts)


def _value_of(value: Any, column: Column, hint: Any) -> Any:
    if get_origin(hint) is tuple:
        part = get_args(hint)[0]
        return tuple(
            row_of(cast("Any", part), item) if is_dataclass(part) else item for item in value
        )
    if type(None) in get_args(hint):
        if isinstance(value, int):
            return None if value < 0 or (column.is_zero_null and not value) else value
        return None if value == "" else value
    return value


@cache
def _hints_of(kind: Any) -> dict[str, Any]:  # Any: such a class is unhashable to type checkers.
    return get_type_hints(kind)


def plain(value: Any) -> Any:  # Any: the type of some field, and what JSON can hold.
    """A value as JSON and YAML can hold it: a dataclass becomes a mapping, a tuple a list."""
    if is_dataclass(value):
        return {key: plain(getattr(value, key)) for key in columns_of(type(value))}
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [plain(part) for part in value]
    return value


def cell(value: Any) -> str:
    """A value as a table shows it: null as a dash, yes and no, lists with commas."""
    if value is None or value == "":
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple | list):
        return ",".join(map(cell, value)) or ABSENT
    return str(value)


@dataclass(frozen=True, slots=True)
class Described:
    """A line of the page of outputs: a key with its type, heading and meaning."""

    key: str
    type: str
    heading: str
    meaning: str


def described(kind: type, prefix: str = "") -> Iterator[Described]:
    """Every key of a kind of row, those of nested rows behind their parent's (`members[].host`)."""
    headings = headings_of(kind)
    hints = get_type_hints(kind)
    for key, column in columns_of(kind).items():
        name, nested = _spelled(hints[key])
        heading = headings.get(key, "") if not prefix else ""
        yield Described(prefix + key, name, heading, column.meaning)
        if nested is not None:
            mark = "[]" if name.startswith("array") else ""
            yield from described(nested, f"{prefix}{key}{mark}.")


_NAMES: Mapping[object, str] = {
    str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null",
}  # fmt: skip


def _spelled(hint: Any) -> tuple[str, type | None]:
    """A type in JSON's words, and the kind of the rows inside it."""
    if hint in _NAMES:
        return _NAMES[hint], None
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " or ".join(f"`{part}`" for part in parts), None
    if origin in (Union, types.UnionType):
        spelled = [_spelled(part) for part in parts]
        nested = next((kind for _, kind in spelled if kind is not None), None)
        return " or ".join(name for name, _ in spelled), nested
    if origin in (list, tuple):
        name, nested = _spelled(parts[0])
        return f"array of {name}s", nested
    if origin is dict:
        return f"object of {_spelled(parts[1])[0]}s", None
    if isinstance(hint, type) and is_dataclass(hint):
        return "object", hint
    raise TypeError(f"{hint} has no form in JSON")
