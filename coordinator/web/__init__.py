"""HTTP/1.1 for a node's own pages, on h11: a thread, limits, and handlers that are plain calls."""
