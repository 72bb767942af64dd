"""The tests. A folder named like a marker (tests/integration) gives it to what is in it."""
