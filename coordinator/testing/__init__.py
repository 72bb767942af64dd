"""A coordinator for tests, of users and our own: no sockets, no waiting.

    from coordinator.testing import VirtualCoordinator

The pytest plugin `coordinator.testing.plugin` offers it as a fixture.
"""

from coordinator.testing.virtual import VirtualCall, VirtualCoordinator

__all__ = ["VirtualCall", "VirtualCoordinator"]
