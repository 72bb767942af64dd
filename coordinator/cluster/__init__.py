"""Leadership of shards, decided by one controller at a time.

Everything that decides is pure: `elections` and `placement` are functions, and
`controller` turns an event into decisions, the way a shard turns an input into effects.
"""
