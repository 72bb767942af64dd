"""When plans are made, of what, and what becomes of them."""
