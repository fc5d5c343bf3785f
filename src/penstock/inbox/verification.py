"""Whether stored events still fit their signatures: what is asked before one is replayed."""

import os
from collections.abc import Sequence
from uuid import UUID

from penstock.inbox import store
from penstock.inbox.model import Source, StoredEvent
from penstock.inbox.receive import still_genuine
from penstock.inbox.sources import sender_of
from penstock.kernel.errors import BadSetting, NotFound
from penstock.kernel.queue import Connection

# Bodies may have a megabyte each, and are held only while they are verified.
BODIES_AT_ONCE = 50


async def not_genuine(
    conn: Connection, ids: Sequence[UUID], *, reason: str, operator: str
) -> set[UUID]:
    """Those whose stored bytes their signature does not fit; rows put in by hand have none.

    Reading the bytes is audited, under the reason.
    """
    sources = {source.source: source for source in await store.sources(conn)}
    refused: set[UUID] = set()
    for start in range(0, len(ids), BODIES_AT_ONCE):
        stored = await store.stored_events(
            conn, ids[start : start + BODIES_AT_ONCE], reason=reason, operator=operator
        )
        refused.update(
            event.id
            for event in stored
            if event.signature is not None and not _genuine(sources.get(event.source or ""), event)
        )
    return refused


def _genuine(source: Source | None, stored: StoredEvent) -> bool:
    if source is None:
        return False
    try:
        return still_genuine(sender_of(source, os.environ), stored)
    except (BadSetting, NotFound, ValueError):
        return False  # without its secret nothing can be said for it
