"""Decisions: what a consumer group does with each request. Deterministic; no I/O, no clock."""
