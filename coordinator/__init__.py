"""A consumer-group coordinator: Kafka's group protocol as a gRPC service.

This module imports nothing, so that a program that only uses the member library
does not load the server.
"""

__version__ = "0.1.0"
