"""Simulated time: a loop whose clock jumps, processes that die and pause, and their network."""
