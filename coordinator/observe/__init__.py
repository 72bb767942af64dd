"""Metrics, log lines and explanations, made from the events of groups."""
