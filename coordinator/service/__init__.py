"""gRPC, and nothing else."""
