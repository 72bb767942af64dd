"""HTTP/1.1 server for a node's pages, on h11: own thread, limits, synchronous handlers."""
