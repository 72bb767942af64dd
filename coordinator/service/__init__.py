"""Pipeline of calls, and the transports in front of it."""
