"""Shares of a group's members in the topic."""

from __future__ import annotations

from tests.integration.kafka.clients import Member
from tests.integration.kafka.served import EVERYTHING
from tests.integration.waiting import wait_until


def are_shared(*members: Member) -> bool:
    """True if every partition has one owner, and every member has some."""
    shares = [member.owned or set() for member in members]
    whole = set().union(*shares) == EVERYTHING and sum(map(len, shares)) == len(EVERYTHING)
    return whole and all(shares)


def wait_until_shared(*members: Member) -> None:
    """Wait until every partition has one owner, and every member has some."""

    def look() -> bool:
        for member in members:
            member.check()
        return are_shared(*members)

    try:
        wait_until(look)
    except TimeoutError:
        said = [f"{member}: {member.owned}\n{member.tail()}" for member in members]
        raise AssertionError("\n".join(said)) from None
