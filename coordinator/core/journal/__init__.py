"""Accounting: what happened to groups and what it cost, from the events of their rules."""
