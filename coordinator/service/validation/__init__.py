"""Validation of what callers send, before any group is looked at."""
