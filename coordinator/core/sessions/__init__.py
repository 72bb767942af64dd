"""Groups of sessions: the coordinator assigns, and moves partitions one by one."""
