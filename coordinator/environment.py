"""Names of environment variables that configure clients and commands, not servers."""

from __future__ import annotations

CLIENT_PREFIX = "COORDINATOR_CLIENT_"
"""Prefix of the variables of credentials."""
BOOTSTRAP = "COORDINATOR_BOOTSTRAP"
"""Addresses of nodes for the command line."""


def is_of_clients(variable: str) -> bool:
    """True if a node does not read the variable as a setting."""
    return variable.startswith(CLIENT_PREFIX) or variable == BOOTSTRAP
