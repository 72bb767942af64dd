"""Authorisation of principals by the rules, with a cache of decisions; refusals are reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from coordinator.security.authenticator import Authenticator
from coordinator.security.rules import AccessDecision, Operation, Rules

REMEMBER_MOST = 100_000
"""Number of decisions in the cache."""
REMEMBER_BYTES = 16 * 1024 * 1024
"""Size of the cache, with a byte for each character of a name: counting real bytes costs more."""
ENTRY_BYTES = 200
LONGEST_GROUP = 4_096
"""Decisions about longer group ids are not cached: no group has one."""
SHOWN = 100
"""Characters of a group id or a principal in a refusal; longer ones are cut."""
UNKNOWN = "unknown"
DENIED, UNAUTHENTICATED = "denied", "unauthenticated"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused call or request: one log line. `rule`: the rule that decided, or the reason.

    `group` and `principal` are cut by `shown`.
    """

    reason: str
    where: str
    principal: str
    peer: str
    operation: str = ""
    group: str | None = None
    rule: str = ""


RefusalSink = Callable[[Refusal], None]


def shown(name: str) -> str:
    """Return a name for a refusal: whole, or its beginning and its length."""
    return name if len(name) <= SHOWN else f"{name[:SHOWN]}… ({len(name)} characters)"


class Guard:
    """Decides by the rules what principals may do. All but `log_refusal` is thread-safe.

    Args:
        rules: None: every authenticated caller may do everything.
    """

    def __init__(self, authenticator: Authenticator, rules: Rules | None) -> None:
        self.authenticator = authenticator
        self._rules = rules
        self._decided: dict[tuple[str, tuple[Operation, ...], str | None], AccessDecision] = {}
        self._decided_bytes = 0
        self.refusals: Counter[str] = Counter()
        """Number of refusals by reason."""
        self.on_refusal: RefusalSink = lambda _: None

    def replace(
        self, *, authenticator: Authenticator | None = None, rules: Rules | None = None
    ) -> None:
        """Replace the authenticator or the rules, and clear the cache of decisions."""
        if authenticator is not None:
            self.authenticator = authenticator
        if rules is not None:
            self._rules = rules
        # A new dict, not `clear`: another thread may be about to write into the old one.
        self._decided = {}
        self._decided_bytes = 0

    def decide(
        self, principal: str, operations: tuple[Operation, ...], group: str | None
    ) -> AccessDecision:
        """Decide whether a principal may do one of the operations.

        Args:
            operations: one of them is enough; empty: authentication is enough.
            group: None: nodes, shards, metrics.
        """
        if group is not None and len(group) > LONGEST_GROUP:
            return self._decide(principal, operations, group)
        decided = self._decided
        key = (principal, operations, group)
        decision = decided.get(key)
        if decision is None:
            decision = self._decide(principal, operations, group)
            size = ENTRY_BYTES + len(principal) + len(group or "")
            if len(decided) >= REMEMBER_MOST or self._decided_bytes + size > REMEMBER_BYTES:
                decided.clear()
                self._decided_bytes = 0
            self._decided_bytes += size
            decided[key] = decision
        return decision

    def may_read_everything(self, principal: str) -> bool:
        """True if no group has to be hidden from a principal."""
        return self._rules is None or self._rules.is_unlimited(principal, Operation.READ)

    def log_refusal(self, refusal: Refusal) -> None:
        """Count and log a refusal."""
        self.refusals[refusal.reason] += 1
        self.on_refusal(refusal)

    def _decide(
        self, principal: str, operations: tuple[Operation, ...], group: str | None
    ) -> AccessDecision:
        if self._rules is None:
            return AccessDecision(True, "there are no rules")
        if not operations:
            return AccessDecision(True, "recognised")
        decisions = [self._rules.decide(principal, one, group) for one in operations]
        return next((d for d in decisions if d.is_allowed), decisions[0])
