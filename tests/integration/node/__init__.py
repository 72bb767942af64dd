"""Nodes as processes: start, stop, restart, clusters, and trouble with folders and disks."""
