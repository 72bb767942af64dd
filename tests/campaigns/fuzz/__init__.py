"""Hostile bytes for every decoder: see README.md."""
