"""The network that every test of this folder may use."""

from tests.operator.network import network

__all__ = ["network"]
