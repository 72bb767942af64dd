"""Format of the log's records, generated from protos/coordinator/durable."""
