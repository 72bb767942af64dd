"""Kafka's wire protocol: APIs and versions, frames, headers, messages, error codes. No I/O."""
