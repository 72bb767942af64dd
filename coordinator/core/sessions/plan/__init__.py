"""Plans of session groups: schedule, input, computation, and applying the result."""
