"""Durable bytes, and who owns them."""
