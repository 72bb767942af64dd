"""Kafka's clients as callers: connections, and translation of their requests to commands."""
