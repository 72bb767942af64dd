"""For those who watch: metrics and log lines, from events."""
