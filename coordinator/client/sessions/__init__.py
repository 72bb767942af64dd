"""Members of session groups."""
