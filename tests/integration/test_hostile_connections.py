"""Connections that abuse HTTP/2."""
