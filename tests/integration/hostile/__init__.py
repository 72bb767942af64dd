"""Callers that harm: connections, messages, ids and metadata, and the limits that stop them."""
