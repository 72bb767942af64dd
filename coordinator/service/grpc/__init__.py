"""gRPC as one transport of the service."""
