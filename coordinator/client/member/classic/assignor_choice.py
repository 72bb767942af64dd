"""The assignors with which a member joins: those its owner wants, or the one it falls back to.

A member is eager or cooperative by what it names, before it joins: one that decided after the join
whether it was eager could hand a partition to two members.

Source: KIP-429.
"""

from __future__ import annotations

from coordinator.assignors import RebalanceProtocol, by_name

REFUSALS_MAX = 4
"""Refusals, one after the other, after which a member stops trying the other choice: the group may
move to the other assignor in between, but not for ever."""


class AssignorChoice:
    """Choice of one member.

    Args:
        wanted: names, best first. fallback: an eager one, for groups that refuse those; or None.
    """

    __slots__ = ("_fallback", "_refusals", "_wanted", "is_cooperative", "names")

    def __init__(self, wanted: tuple[str, ...], fallback: str | None) -> None:
        self._wanted = wanted
        self._fallback = fallback
        self._refusals = 0
        self._choose(wanted)

    def _choose(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.is_cooperative = all(
            RebalanceProtocol.COOPERATIVE in by_name(name).protocols for name in names
        )
        """True if every one of them supports the cooperative protocol."""

    def accepted(self) -> None:
        """The group has accepted the member."""
        self._refusals = 0

    def refused(self) -> bool:
        """The group has refused these: take the other choice. False: there is none to try.

        The caller has to hold nothing before it joins with it.
        """
        self._refusals += 1
        if self._fallback is None or self._refusals >= REFUSALS_MAX:
            return False
        self._choose((self._fallback,) if self.names == self._wanted else self._wanted)
        return True

    def way_over(self) -> str:
        """Advice: to move the group to the wanted assignor; empty if the member names it now."""
        if self.names == self._wanted:
            return ""
        new = self._wanted[0]
        return _restarts(f"To move the group to {new}", [new, *filter(None, [self._fallback])], new)

    def way_in(self) -> str:
        """Advice: to join a group that follows another assignor than these."""
        other = next((n for n in ("cooperative-sticky", "range") if n not in self.names), "sticky")
        both = [other, *self.names]
        return (
            f"This member names {', '.join(self.names)} alone. To join a group that follows "
            f"{other}, name both: assignors={both}. "
            + _restarts(f"To move the whole group to {other}", both, other)
        )


def _restarts(aim: str, both: list[str], new: str) -> str:
    return (
        f"{aim}, restart its members one after the other, twice: first with assignors={both}, "
        f"then with assignors={[new]}"
    )
