"""Rules of the coordinator: each case plays members."""

from tests.protocol.sessions.coordinator_rules import (
    attaching,
    handoffs,
    leases,
    leaving,
    operating,
    planning,
    preparing,
    refusing,
    restarting,
)

PARTS = (attaching, leases, handoffs, preparing, leaving, planning, operating, refusing)
ALL = [case for part in PARTS for case in part.cases.all]
"""All that need no restart."""
RESTARTS = restarting.cases.all
"""Cases for which the coordinator is restarted."""
