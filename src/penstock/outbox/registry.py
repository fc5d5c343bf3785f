"""What this process knows to be kept: the schema of each topic and version, compared once.

Whoever opens the application does it there, on a connection of its own. A process that only
publishes, in transactions of its users, asks with the first event of each topic; only where no
process ever did, the schema comes with that event.
"""

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec

from penstock.kernel.codec import encode
from penstock.kernel.connections import SyncConnection
from penstock.kernel.queue import Connection
from penstock.outbox import store
from penstock.outbox.errors import SchemaChanged
from penstock.outbox.schemas import differences, merged, schema_of


class Named(Protocol):
    """A topic, as far as its schema goes."""

    name: str
    version: int
    model: Any


class Registry:
    """Which topics this process has compared with what is kept."""

    def __init__(self) -> None:
        self._known: set[tuple[str, int]] = set()

    async def register(self, conn: Connection, topics: Iterable[Named]) -> None:
        """Keep schemas; raises SchemaChanged if the kept one of a version does not fit.

        Waits for no producer: one that is at it in an open transaction leaves the topic unknown.
        """
        for topic in topics:
            if (schema := self._unknown(topic)) is None:
                continue
            text = await store.propose_schema(conn, *_proposal(topic, schema))
            kept = self._heard(topic, schema, text)
            if kept is not None and (known := merged(kept, schema)) != kept:
                await store.replace_schema(conn, topic.name, str(topic.version), encode(known))

    async def check(self, conn: Connection, topic: Named) -> None:
        """Before an event, in the user's transaction; raises SchemaChanged. Asks once."""
        if (schema := self._unknown(topic)) is not None:
            kept = await store.propose_schema(conn, *_proposal(topic, schema))
            self._heard(topic, schema, kept)

    def check_sync(self, conn: SyncConnection, topic: Named) -> None:
        """The same on a blocking connection."""
        if (schema := self._unknown(topic)) is not None:
            kept = store.propose_schema_sync(conn, *_proposal(topic, schema))
            self._heard(topic, schema, kept)

    def _unknown(self, topic: Named) -> dict[str, Any] | None:
        """The schema, if it has not been compared and can be."""
        mine = (topic.name, topic.version)
        if mine in self._known:
            return None
        schema = schema_of(topic.model)
        if schema is None:
            self._known.add(mine)
        return schema

    def _heard(
        self, topic: Named, schema: dict[str, Any], text: str | None
    ) -> dict[str, Any] | None:
        """The kept schema; None: it comes with this event, or another's, and may be undone."""
        if text is None:
            return None
        kept = _fitting(topic, schema, text)
        self._known.add((topic.name, topic.version))
        return kept


def _proposal(topic: Named, schema: dict[str, Any]) -> tuple[str, str, str]:
    return topic.name, str(topic.version), encode(schema)


def _fitting(topic: Named, schema: dict[str, Any], text: str) -> dict[str, Any]:
    kept: dict[str, Any] = msgspec.json.decode(text)
    if found := list(differences(kept, schema)):
        raise SchemaChanged(f"topic {topic.name}, version {topic.version}: {'; '.join(found[:5])}")
    return kept
