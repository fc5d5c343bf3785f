"""Other queues for Postgres, each in an environment of its own, draining a backlog of its own."""
