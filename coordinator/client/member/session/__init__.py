"""The protocol of session groups: what a member says next, and what an answer means."""
