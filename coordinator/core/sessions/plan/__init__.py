"""Plans of session groups: their time, their input, what they divide, and what becomes of them."""
