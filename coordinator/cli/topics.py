"""`coordinator topics`: how many partitions topics have that no log tells."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coordinator.cli.connection import add_common_flags, credentials_of
from coordinator.cli.output import Output, show
from coordinator.cli.parser import add_actions
from coordinator.observe.rows import Change, column

if TYPE_CHECKING:
    from coordinator.operator.topics import TopicAdmin, TopicRefused

_TOLD = (
    "Largest number that a group tells, by what its members are assigned, report or have "
    "committed; null: no group knows the topic."
)
NO_TOPICS = (
    "No topics: no group has offsets, log ends or an assignment, and no number is set "
    "(coordinator topics set NAME PARTITIONS)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """A topic."""

    topic: str = column("Topic.")
    partitions: int = column(
        "Number of partitions in force: the one that is set, or else the one that groups tell."
    )
    set: int | None = column("Number that an operator has set; null: none.")
    reported: int | None = column(_TOLD)
    groups: int = column("Number of groups that know the topic.", "#GROUPS")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTopicRow(Change):
    """A topic whose number of partitions was set."""

    topic: str = column("Topic.")
    partitions: int = column("Number of partitions that was asked for.")
    partitions_before: int | None = column(
        "Number that was in force before; null: the topic was unknown, or the change was refused.",
        "BEFORE",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedTopicRow(Change):
    """A topic whose number of partitions was deleted."""

    topic: str = column("Topic.")
    reported: int | None = column(
        "Number that groups still tell, which is in force now; null: the topic is unknown now, or "
        "the change was refused."
    )


def add_parsers(commands: Any) -> None:  # Any: argparse does not name its type.
    """The actions and their flags."""
    text = "list topics, and set how many partitions they have"
    actions = add_actions(commands.add_parser("topics", help=text, description=text))
    for name, text, action, kind in (
        ("list", "list the topics that are set or that groups know", _list, TopicRow),
        ("set", "set the number of partitions of a topic", _set, SetTopicRow),
        ("delete", "delete numbers that were set; groups stay as they are", _delete,
         DeletedTopicRow),
    ):  # fmt: skip
        command = actions.add_parser(name, help=text, description=f"{text.capitalize()}.")
        command.set_defaults(run=run, action=action)
        add_common_flags(command, kind, can_watch=name == "list")
        if name == "set":
            command.add_argument("topic", metavar="TOPIC", help="name of the topic")
            command.add_argument(
                "partitions", type=_count, metavar="PARTITIONS", help="number of partitions"
            )
            command.add_argument(
                "--shrink",
                action="store_true",
                help="allow fewer partitions than now; members stop to work on the others",
            )
        if name == "delete":
            command.add_argument("topic", nargs="+", metavar="TOPIC", help="names of topics")


def run(options: argparse.Namespace) -> int:
    """Run an action and print its rows; the exit status."""

    def act() -> Output:
        from coordinator.operator.topics import TopicAdmin

        with TopicAdmin(options.bootstrap, credentials=credentials_of(options)) as admin:
            output: Output = options.action(admin, options)
            return output

    return show(options, act)


def _list(admin: TopicAdmin, options: argparse.Namespace) -> Output:
    listed = [
        TopicRow(
            topic=topic.name,
            partitions=topic.partitions,
            set=topic.set_partitions or None,
            reported=topic.reported_partitions or None,
            groups=topic.groups,
        )
        for topic in admin.list_topics()
    ]
    return Output(TopicRow, listed, empty=NO_TOPICS)


def _set(admin: TopicAdmin, options: argparse.Namespace) -> Output:
    from coordinator.operator.topics import TopicRefused

    before, error, code = 0, None, None
    try:
        before = admin.set_topic(options.topic, options.partitions, may_shrink=options.shrink)
    except TopicRefused as refused:
        error, code = _sentence(options.topic, refused), refused.code
    row = SetTopicRow(
        topic=options.topic,
        partitions=options.partitions,
        partitions_before=before or None,
        error=error,
        error_code=code,
    )
    return Output(SetTopicRow, [row])


def _delete(admin: TopicAdmin, options: argparse.Namespace) -> Output:
    from coordinator.operator.topics import TopicRefused

    deleted: list[DeletedTopicRow] = []
    for topic in dict.fromkeys(options.topic):
        count, error, code = 0, None, None
        try:
            count = admin.delete_topic(topic)
        except TopicRefused as refused:
            error, code = _sentence(topic, refused), refused.code
        deleted.append(
            DeletedTopicRow(topic=topic, reported=count or None, error=error, error_code=code)
        )
    notes = [
        f"Groups still tell the partitions of {row.topic}: it stays a topic while they have "
        "offsets, log ends or assignments of it."
        for row in deleted
        if row.reported is not None
    ]
    return Output(DeletedTopicRow, deleted, notes=notes)


def _sentence(topic: str, refused: TopicRefused) -> str:
    from coordinator.observe.spelling import quoted

    return f"Topic {quoted(topic)} is not changed: {refused}."


def _count(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of partitions") from None
