"""The inbox as bare SQL, for tests that prove the functions and not the Python around them."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
from tests.support.outbox import CLOCK_SHIFTABLE

from penstock.inbox import store
from penstock.inbox.model import Arrival, Taken

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

# Makes the next tend sweep, and the mark old enough to count, without waiting for real time.
SWEEP_DUE = "select setval('penstock.inbox_swept', 0), setval('penstock.inbox_at', 0)"


@dataclass(frozen=True, slots=True)
class Leased:
    """One row that a claim returned."""

    id: UUID
    event_id: str
    event_type: str
    route: int | None
    token: UUID
    attempts: int
    epoch: int


def arrival(
    webhook_id: UUID, event_id: str, body: str = '{"n": 1}', *, kind: str = "t", **more: Any
) -> Arrival:
    """A verified event as the door would hand it over."""
    raw = body.encode("utf-8", "surrogatepass")
    fields = {"raw_body": raw, "payload": body, "body_sha256": hashlib.sha256(raw).digest()}
    return Arrival(webhook_id, event_id, kind, **{**fields, **more})


class SqlInbox:
    """Every verb of the inbox on one connection."""

    def __init__(self, conn: Connection) -> None:
        self.conn = conn

    async def source(self, name: str = "stripe", provider: str = "stripe", **settings: Any) -> UUID:
        """Add a source; settings are columns of its row."""
        webhook_id: UUID = await self.conn.fetchval(
            "insert into webhook_endpoints (source, provider) values ($1, $2) returning id",
            name,
            provider,
        )
        for column, value in settings.items():
            await self.conn.execute(
                f"update webhook_endpoints set {column} = $1 where id = $2", value, webhook_id
            )
        return webhook_id

    async def receive(self, *arrivals: Arrival) -> list[Taken]:
        """Store events in one call."""
        return await store.receive_many(self.conn, arrivals)

    async def send(self, webhook_id: UUID, *event_ids: str, kind: str = "t") -> list[UUID]:
        """Store new events; returns their ids."""
        arrivals = [arrival(webhook_id, event_id, kind=kind) for event_id in event_ids]
        assert await self.receive(*arrivals) == ["stored"] * len(arrivals)
        return [one.id for one in arrivals]

    async def claim(
        self, limit: int = 100, *, token: UUID | None = None, **options: Any
    ) -> list[Leased]:
        """Claim under a fresh token; options: owner, sources, patterns, full."""
        named = "".join(f", p_{name} => ${at}" for at, name in enumerate(options, start=3))
        rows = await self.conn.fetch(
            f"select * from webhook.inbox_claim($1, $2{named})",
            limit,
            token or uuid4(),
            *options.values(),
        )
        return [
            Leased(
                row["id"],
                row["event_id"],
                row["event_type"],
                row["route"],
                row["lease_token"],
                row["attempts"],
                row["lease_epoch"],
            )
            for row in rows
        ]

    async def finish(self, items: Sequence[Leased]) -> list[UUID]:
        """Finish; returns the refused ones."""
        return await store.finish(self.conn, *_keys(items))

    async def fail(
        self,
        items: Sequence[Leased],
        verdict: str = "retry",
        *,
        delay_s: float | None = 0.0,
        code: str = "BROKEN",
    ) -> list[UUID]:
        """End attempts with a verdict; returns the refused ones."""
        count = len(items)
        return await store.mark_failed(
            self.conn,
            *_keys(items),
            [verdict] * count,
            [delay_s] * count,
            [code] * count,
            ["it did not work"] * count,
        )

    async def tend(self, *, sweep: bool = False) -> tuple[int, int, int]:
        """Housekeeping now; with `sweep` the sweep is due as well, whatever the real time."""
        if sweep:
            await self.conn.execute(SWEEP_DUE)
        row = await self.conn.fetchrow("select reaped, due, swept from webhook.inbox_tend()")
        assert row is not None
        return row["reaped"], row["due"], row["swept"]

    async def row(self, event: UUID) -> asyncpg.Record:
        """The hot row of an event."""
        found = await self.conn.fetchrow("select * from webhook_events where id = $1", event)
        assert found is not None, "the event is not in webhook_events"
        return found

    async def status(self, event_id: str) -> str | None:
        """The status of an event by the provider's id."""
        found: str | None = await self.conn.fetchval(
            "select status::text from webhook_events where event_id = $1", event_id
        )
        return found

    async def state(self, event: UUID) -> str | None:
        """The state of an event, wherever it is; None when there is no such event."""
        found: str | None = await self.conn.fetchval(
            "select state from webhook.inbox_all where id = $1", event
        )
        return found

    async def policy(self, **values: object) -> None:
        """Change the queue's numbers."""
        for name, value in values.items():
            await self.conn.execute(
                f"update penstock.queue_config set {name} = $1 where queue = 'inbox'", value
            )

    async def counter(self, metric: str, label: str) -> int:
        """A counter over all sources."""
        total = await self.conn.fetchval(
            "select sum(total) from webhook.metrics where metric = $1 and label = $2", metric, label
        )
        return int(total or 0)

    async def make_clock_settable(self) -> None:
        """Replace the one clock by a shiftable one, in this database only."""
        await self.conn.execute(CLOCK_SHIFTABLE)

    async def advance(self, by: timedelta) -> None:
        """Move the database's clock, for everybody."""
        await self.conn.execute("update penstock.test_clock set shift = shift + $1", by)


def _keys(items: Sequence[Leased]) -> tuple[list[UUID], list[UUID]]:
    return [item.id for item in items], [item.token for item in items]
