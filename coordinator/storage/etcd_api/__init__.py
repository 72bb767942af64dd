"""The generated contract. Never edit: run `poe protos`."""
