"""Access to nodes: TLS, tokens, certificates and rules."""
