"""Keeps the chain of hashes up with the attempts, as a job beside the dispatches."""

from time import monotonic

from penstock.kernel.queue import Connection
from penstock.payments import store

BATCH = 5000
# Less than a scheduled job may take: what is left is the next run's.
SECONDS_MAX = 30.0


async def extend(conn: Connection, *, batch: int = BATCH) -> int:
    """Link the attempts that have no link yet, batch by batch; returns how many.

    One batch a minute would fall behind for ever where many are paid, and an attempt without its
    link can be changed unseen.
    """
    started, linked = monotonic(), 0
    while monotonic() - started < SECONDS_MAX:
        count = await store.extend_chain(conn, batch)
        linked += count
        if count < batch:
            break
    return linked
