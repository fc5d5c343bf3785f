"""The ledger: the second database, which decides once whose a resource is."""
