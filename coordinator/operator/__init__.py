"""The operators' side of the API, for the command line and the console."""
