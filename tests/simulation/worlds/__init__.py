"""Many simulated processes in one thread, on a clock that jumps."""
