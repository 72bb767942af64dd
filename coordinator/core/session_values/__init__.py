"""Values of session groups: what the log, requests, messages and commands are made of."""
