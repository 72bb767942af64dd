"""The network that every test of this folder may use."""

from tests.unit.operator.network import network

__all__ = ["network"]
