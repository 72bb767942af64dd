"""Members that come and come back."""
