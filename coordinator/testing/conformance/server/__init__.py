"""Cases for servers: the kit plays the members."""

from coordinator.testing.conformance.server import (
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
"""All cases for servers that need no restart."""
RESTARTS = restarting.cases.all
"""Cases for which the server is restarted."""
