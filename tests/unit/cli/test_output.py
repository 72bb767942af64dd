"""Output of commands: typed rows as tables, JSON and YAML; refusals as sentences; statuses."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math

import grpc
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from coordinator.cli import output
from coordinator.cli.flags import WrongUsage
from coordinator.cli.formats import as_json, as_yaml
from coordinator.cli.output import Output, rendered, show
from coordinator.cli.refusals import not_there, refusal
from coordinator.dial import Credentials
from coordinator.observe.rows import Change, Described, column, described


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    host: str | None = column("Its address.")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Partition(Change):
    topic: str = column("Topic.")
    current_offset: int | None = column("Committed offset; null: none.")
    member_count: int = column("Members.", "#MEMBERS")
    replicas: tuple[int, ...] = column("Node ids.")
    is_live: bool = column("True if it is.", "LIVE")
    share: float = column("Part of all.", text=lambda share: f"{share:.0%}")
    owners: tuple[Owner, ...] = column("Who reads it.", None)


FIRST = Partition(
    topic="a\x1b[2J",
    current_offset=None,
    member_count=2,
    replicas=(1, 2),
    is_live=True,
    share=0.25,
    owners=(Owner(host=None),),
)
REFUSED = dataclasses.replace(
    FIRST, topic="b", current_offset=7, replicas=(), error="It is read.", error_code="IN_USE"
)
WRITTEN = {
    "topic": "a\x1b[2J",
    "current_offset": None,
    "member_count": 2,
    "replicas": [1, 2],
    "is_live": True,
    "share": 0.25,
    "owners": [{"host": None}],
    "error": None,
    "error_code": None,
}
HEADINGS = "TOPIC CURRENT-OFFSET #MEMBERS REPLICAS LIVE SHARE STATUS".split()


def options(**more) -> argparse.Namespace:
    return argparse.Namespace(
        **{"output": "table", "bootstrap": "here:1", "credentials": Credentials(), "color": "auto"}
        | more
    )


def test_programs_read_types_nulls_and_numbers():
    both = Output(Partition, [FIRST, REFUSED])
    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        first, refused = read(rendered(both, form))
        assert first == WRITTEN
        assert list(first) == list(WRITTEN)
        assert (refused["error"], refused["error_code"]) == ("It is read.", "IN_USE")


def test_people_read_headings_and_dashes():
    lines = rendered(Output(Partition, [FIRST, REFUSED]), "table").split("\n")
    assert lines[0].split() == HEADINGS
    assert lines[1].split() == ["a\\x1b[2J", "-", "2", "1,2", "yes", "25%", "done"]
    assert lines[2].split(maxsplit=6) == ["b", "7", "2", "-", "yes", "25%", "It is read."]


def test_a_table_that_is_wider_than_the_terminal_has_short_ids():
    uuid = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"
    table = Output(Partition, [dataclasses.replace(FIRST, topic=f"w-1-{uuid}")])
    wide = rendered(table, "table", width=100)
    assert wide == rendered(table, "table")
    assert uuid in wide
    narrow = rendered(table, "table", width=60, colour=True)
    assert "w-1 …4bed" in narrow
    assert uuid not in narrow


def test_without_rows_there_are_headings_a_sentence_and_an_empty_list(capsys):
    nothing = Output(Partition, [], empty="There is no partition.")
    assert show(options(), lambda: nothing) == 0
    said = capsys.readouterr()
    assert said.out.split() == HEADINGS
    assert said.err == "There is no partition.\n"
    for form, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        assert show(options(output=form), lambda: nothing) == 0
        said = capsys.readouterr()
        assert read(said.out) == []
        assert said.err == ""


def test_a_partial_failure_is_in_its_row_and_in_the_status(capsys):
    assert show(options(output="json"), lambda: Output(Partition, [FIRST, REFUSED])) == 1
    assert [row["error_code"] for row in json.loads(capsys.readouterr().out)] == [None, "IN_USE"]
    assert show(options(), lambda: Output(Partition, [FIRST])) == 0
    assert show(options(), lambda: Output(Partition, [FIRST], has_failed=True)) == 1


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
CONTENT = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | st.sampled_from(["null", "yes", "1", "~", "- a", "a: b", "#"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXTS | st.sampled_from(["group", "no", "y", "null"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(CONTENT)
@example([1e16, 5e-324, -1.5e300, -0.0])  # Python writes some of them without a point.
def test_yaml_and_json_are_read_as_they_were(content):
    assert json.loads(as_json(content)) == content
    assert yaml.safe_load(as_yaml(content)) == content


def test_what_json_has_no_word_for_is_refused():
    with pytest.raises(ValueError):
        as_json(math.nan)


class Rpc(grpc.RpcError):
    def __init__(self, code, details):
        super().__init__()
        self.code, self.details = lambda: code, lambda: details


UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("error", "words", "status"),
    [
        (LookupError("There is no group g."), "There is no group g.", 1),
        (LookupError("Group 'a' refuses: NOT_CONTROLLER."), "another node is the controller", 1),
        (LookupError("There is no NOT_CONTROLLER here."), "no NOT_CONTROLLER here.", 1),
        (ValueError("it is odd"), "it is odd", 1),
        (WrongUsage("give --topic"), "give --topic", 2),
        (FileNotFoundError(2, "No such file or directory", "x"), "x: No such file", 1),
        (OSError("too much"), "too much", 1),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "not text in UTF-8", 1),
        (Rpc(grpc.StatusCode.PERMISSION_DENIED, "no"), "here:1 refuses: no", 1),
        (Rpc(grpc.StatusCode.UNIMPLEMENTED, ""), "another program", 1),
        (Rpc(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"), "within 10 s", 1),
        (Rpc(UNAVAILABLE, "last error: Connection refused"), "nothing listens there", 1),
        (Rpc(UNAVAILABLE, "DNS resolution failed for x"), "the name has no address", 1),
    ],
)
def test_refusals_are_sentences(error, words, status, capsys, monkeypatch):
    monkeypatch.setattr("coordinator.cli.refusals.tls_failure", lambda *_: "")

    def fails():
        raise error

    assert show(options(), fails) == status
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("coordinator: ")
    assert said.err.count("\n") == 1
    assert words in said.err


@pytest.mark.parametrize("bug", [KeyError("x"), IndexError(3), TypeError("y"), BrokenPipeError()])
def test_a_bug_is_no_refusal(bug):
    assert refusal(bug, options()) is None

    def fails():
        raise bug

    with pytest.raises(type(bug)):
        show(options(), fails)


def test_what_is_not_there_says_what_is():
    assert not_there("node", 7, [1, 2]) == "There is no node 7; the nodes are 1, 2."
    assert not_there("node", 7, []) == "There is no node 7: there are no nodes."
    many = [f"group-{n}" for n in range(30)]
    told = not_there("group", "gruop-3", many)
    assert told.startswith("There is no group gruop-3; the groups are group-3,")
    assert told.endswith("and 20 more.")


def test_watching_repeats_until_it_is_interrupted(capsys, monkeypatch):
    slept, answers = [], iter([[FIRST], [], ValueError("gone"), [REFUSED]])

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 4:
            raise KeyboardInterrupt

    def action():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return Output(Partition, answer)

    monkeypatch.setattr(output.time, "sleep", sleep)
    assert show(options(output="json", watch=3.0), action) == 0
    said = capsys.readouterr()
    assert slept == [3.0] * 4
    assert output.CLEAR not in said.out  # No terminal.
    decoder, text, sizes = json.JSONDecoder(), said.out, []
    while text := text.strip():
        rows, end = decoder.raw_decode(text)
        sizes.append(len(rows))
        text = text[end:]
    assert sizes == [1, 0, 1]
    assert said.err == "coordinator: gone\n"


@pytest.mark.parametrize(
    ("flag", "no_color", "is_coloured"),
    [("always", "1", True), ("never", "", False), ("auto", "", False), ("auto", "1", False)],
)
def test_colours(flag, no_color, is_coloured, capsys, monkeypatch):
    monkeypatch.setenv("NO_COLOR", no_color)
    show(options(color=flag), lambda: Output(Partition, [FIRST]))
    assert ("\x1b[32mdone" in capsys.readouterr().out) is is_coloured


@pytest.mark.parametrize(("no_color", "is_coloured"), [("", True), ("0", False), ("1", False)])
def test_colours_of_a_terminal(no_color, is_coloured, monkeypatch):
    monkeypatch.setattr(output.sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", no_color)
    assert output.has_colour(options()) is is_coloured
    monkeypatch.setenv("TERM", "dumb")
    assert not output.has_colour(options())


def test_declarations_describe_themselves():
    lines = list(described(Partition))
    assert lines[1] == Described(
        "current_offset", "integer or null", "CURRENT-OFFSET", "Committed offset; null: none."
    )
    assert [(line.key, line.type, line.heading) for line in lines[3:]] == [
        ("replicas", "array of integers", "REPLICAS"),
        ("is_live", "boolean", "LIVE"),
        ("share", "number", "SHARE"),
        ("owners", "array of objects", ""),
        ("owners[].host", "string or null", ""),
        ("error", "string or null", "STATUS"),
        ("error_code", "string or null", ""),
    ]
