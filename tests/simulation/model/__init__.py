"""Bounded model checker: all orders of events, over the shard itself."""
