"""Members and workers against real nodes: faces, processes, signals, and other languages."""
