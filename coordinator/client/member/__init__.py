"""One member of a group: its machine, its ledger, and its faces."""
