"""The answer to "may they?": the caller, the rules, and a log line for each refusal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from coordinator.security.authenticator import Authenticator
from coordinator.security.rules import Decision, Operation, Rules

REMEMBER_MOST = 100_000
UNKNOWN = "unknown"
DENIED, UNAUTHENTICATED = "denied", "unauthenticated"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Somebody was turned away: one log line. `rule` is the one that decided, in words."""

    reason: str
    where: str
    principal: str
    peer: str
    operation: str = ""
    group: str | None = None
    rule: str = ""


RefusalSink = Callable[[Refusal], None]


class Guard:
    """Who may do what. Everything but `tell` may be called from any thread.

    Args:
        rules: None: whoever is recognised may do everything.
    """

    def __init__(self, authenticator: Authenticator, rules: Rules | None) -> None:
        self.authenticator = authenticator
        self._rules = rules
        self._decided: dict[tuple[str, tuple[Operation, ...], str | None], Decision] = {}
        self.refusals: Counter[str] = Counter()
        """Those turned away, by reason."""
        self.on_refusal: RefusalSink = lambda _: None

    def replace(
        self, *, authenticator: Authenticator | None = None, rules: Rules | None = None
    ) -> None:
        """Go by others from now on; what was decided before is forgotten."""
        if authenticator is not None:
            self.authenticator = authenticator
        if rules is not None:
            self._rules = rules
        # A new table, not an empty one: another thread may be about to write into the old one.
        self._decided = {}

    def decide(
        self, principal: str, operations: tuple[Operation, ...], group: str | None
    ) -> Decision:
        """Whether a principal may do one of the operations.

        Args:
            operations: any of them will do; none: being recognised will do.
            group: None: what concerns no group.
        """
        decided = self._decided
        key = (principal, operations, group)
        found = decided.get(key)
        if found is None:
            if len(decided) >= REMEMBER_MOST:
                decided.clear()
            found = decided[key] = self._decide(principal, operations, group)
        return found

    def may_read_everything(self, principal: str) -> bool:
        """True if no group has to be hidden from a principal."""
        return self._rules is None or self._rules.is_unlimited(principal, Operation.READ)

    def tell(self, refusal: Refusal) -> None:
        """Count and log a refusal."""
        self.refusals[refusal.reason] += 1
        self.on_refusal(refusal)

    def _decide(
        self, principal: str, operations: tuple[Operation, ...], group: str | None
    ) -> Decision:
        if self._rules is None:
            return Decision(True, "there are no rules")
        if not operations:
            return Decision(True, "recognised")
        decisions = [self._rules.decide(principal, one, group) for one in operations]
        return next((d for d in decisions if d.is_allowed), decisions[0])
