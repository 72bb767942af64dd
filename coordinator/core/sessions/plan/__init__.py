"""The plan of a session group: which member should hold which partition."""
