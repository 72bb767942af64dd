"""Benchmarks of the coordinator and of its timer: `python -m tests.bench`.

They measure on this machine and print ratios. Absolute times on shared machines say little, so
what is compared is measured in the same run, in turn. `deploy/benchmarks.md` has the results.
"""
