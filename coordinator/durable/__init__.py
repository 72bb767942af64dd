"""What the log holds: the format of its records, generated from protos/coordinator/durable."""
