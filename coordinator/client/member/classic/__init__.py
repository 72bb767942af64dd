"""The classic protocol of a member: what it says next, and what an answer means."""
