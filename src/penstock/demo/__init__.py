"""The demo: a sale over real HTTP and real processes, under faults, with a proof at the end."""
