"""Kafka's own clients against real nodes."""
