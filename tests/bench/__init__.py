"""`coordinator bench`: measures on this machine and prints ratios.

Absolute times on shared machines say little; what is compared here is measured in the
same run.
"""
