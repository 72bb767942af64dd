"""The only place that awaits on behalf of groups."""
