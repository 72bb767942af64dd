"""Cases for clients: the kit is the coordinator."""

from coordinator.testing.conformance.client import leases, orders, streams

ALL = [case for part in (streams, orders, leases) for case in part.cases.all]
"""All cases for clients."""
