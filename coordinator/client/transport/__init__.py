"""The way to the coordinator: connections, drivers, loops and signals."""
