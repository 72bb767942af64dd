"""Rules of a member: each case plays the coordinator."""

from tests.protocol.sessions.member_rules import leases, orders, streams

ALL = [case for part in (streams, orders, leases) for case in part.cases.all]
