"""An application that receives webhooks on a real server, and its sources."""

import contextlib
import io
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

import aiohttp
import asyncpg
from starlette.types import ASGIApp
from tests.support.providers import Case
from tests.support.serving import serving

from penstock.application import Penstock
from penstock.testing import signed

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    body: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Door:
    """The public address of the inbox, and the database behind it."""

    session: aiohttp.ClientSession
    base: str
    conn: Connection

    async def post(
        self, source: str, body: Any, headers: Mapping[str, str] | None = None, query: str = ""
    ) -> Reply:
        """Send a delivery as it is."""
        url = f"{self.base}/webhooks/{source}{query}"
        data = io.BytesIO(body) if isinstance(body, bytes) else body
        async with self.session.post(url, data=data, headers=headers) as answer:
            return Reply(answer.status, await answer.read(), answer.headers)

    async def get(self, source: str, query: str) -> Reply:
        """Ask, as a handshake does."""
        async with self.session.get(f"{self.base}/webhooks/{source}?{query}") as answer:
            return Reply(answer.status, await answer.read(), answer.headers)

    async def deliver(self, case: Case, body: bytes, **options: Any) -> Reply:
        """Send a delivery that the provider has signed just now."""
        secret = options.pop("secret", case.secret)
        headers, content = signed(case.name, secret, body, options=case.options, **options)
        return await self.post(case.name, content, headers)

    async def events(self) -> list[asyncpg.Record]:
        """Every stored event, oldest first."""
        return await self.conn.fetch("select * from public.webhook_events order by seq")

    async def count(self) -> int:
        """How many events are stored."""
        found: int = await self.conn.fetchval("select count(*) from public.webhook_events")
        return found


def variable(name: str) -> str:
    """The environment variable that holds a source's secret."""
    return f"PENSTOCK_TEST_SECRET_{name.upper()}"


async def add_source(
    conn: Connection, case: Case, *, options: Mapping[str, object] | None = None, **settings: object
) -> UUID:
    """Configure a source; its secret is in the environment."""
    given = {**case.options, **(options or {})}
    settings = {
        "timestamp_signed": case.scheme.timestamped,
        "public_url": given.pop("public_url", None),
        "options": given,
        **settings,
    }
    found: UUID = await conn.fetchval(
        "select id from webhook.put_source($1, $2, $3, $4::text::jsonb, 'test')",
        case.name,
        case.name,
        [f"env:{variable(case.name)}"],
        json.dumps(settings),
    )
    return found


@contextlib.asynccontextmanager
async def open_door(application: Penstock | ASGIApp, conn: Connection) -> AsyncIterator[Door]:
    """Serve the application and hand out its address."""
    async with serving(application) as base, aiohttp.ClientSession() as session:
        yield Door(session, base, conn)
