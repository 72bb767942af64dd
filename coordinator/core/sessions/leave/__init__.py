"""Members that leave, and whose sessions end."""
