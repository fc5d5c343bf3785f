"""A sale over two databases, and a receiver of webhooks that remembers every call."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from aiohttp import web
from tests.support.intake import POOL, Connection, SqlIntake


@dataclass
class Sale:
    """The engine's verbs beside the ledger's tables."""

    engine: SqlIntake
    ledger: Connection

    async def open(self, slots: int, **settings: object) -> None:
        """Stock the pool and write its settings."""
        await self.engine.stock(slots)
        await self.engine.configure(**settings)

    async def sell(self, *users: str) -> list[UUID]:
        """Reserve one slot for each user; returns the reservations."""
        answers = await self.engine.reserve(*users)
        assert all(answer.reservation_id for answer in answers)
        return [answer.reservation_id for answer in answers if answer.reservation_id]

    async def tickets(self) -> dict[str, str]:
        """Who holds which resource in the ledger."""
        rows = await self.ledger.fetch("select resource_id, user_id from confirmed_tickets")
        return {str(row["resource_id"]): row["user_id"] for row in rows}

    async def dead(self) -> list[tuple[int, str]]:
        """Number and code of every dead letter."""
        rows = await self.engine.conn.fetch("select msg_id, error_code from intake_dlq_list()")
        return [(row["msg_id"], row["error_code"]) for row in rows]

    async def make_due(self) -> None:
        """Let every message be ready now."""
        await self.engine.conn.execute(
            "update pgmq.q_intake_queue set vt = clock_timestamp() - interval '1 second'"
        )
        await self.engine.conn.execute(
            "insert into penstock_intake.returned select msg_id from pgmq.q_intake_queue"
            " on conflict do nothing"
        )

    async def prove(self) -> None:
        """No invariant is broken, in the engine or between the two databases."""
        assert await self.engine.violations() == []
        rows = await self.engine.conn.fetch(
            "select id, locked_by from inventory_slots where status = 'CONSUMED'"
        )
        sold = {str(row["id"]): row["locked_by"] for row in rows}
        tickets = await self.tickets()
        assert sold.items() <= tickets.items()
        for resource, user in tickets.items():
            slot = await self.engine.slot(UUID(resource))
            assert slot is not None
            assert (slot["locked_by"], slot["status"] != "AVAILABLE") == (user, True)


@dataclass
class Call:
    """One request as the receiver saw it."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    raw: bytes


@dataclass
class Receiver:
    """Answers by path with what the test lined up, 200 otherwise; keeps one order per key."""

    port: int = 0
    calls: list[Call] = field(default_factory=list)
    orders: dict[str, str] = field(default_factory=dict)
    statuses: dict[str, list[int]] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    lose_answers: int = 0
    running: int = 0
    most: int = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def keys(self, path: str) -> Counter[str]:
        """How often each key was sent to a path."""
        return Counter(c.headers["x-idempotency-key"] for c in self.calls if c.path == path)

    def answer_with(self, path: str, statuses: Sequence[int]) -> None:
        """Line up answers for the next calls of a path; the last one stays."""
        self.statuses[path] = list(statuses)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            raw = await request.read()
            headers = {name.lower(): value for name, value in request.headers.items()}
            self.calls.append(Call(request.path, headers, json.loads(raw), raw))
            await asyncio.sleep(self.delay_s)
            waiting = self.statuses.get(request.path, [200])
            status = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            if 200 <= status < 300:
                self.orders.setdefault(headers["x-idempotency-key"], headers["x-reservation-id"])
            if self.lose_answers > 0:
                self.lose_answers -= 1
                assert request.transport is not None
                request.transport.close()
            return web.Response(status=status, headers=self.headers)
        finally:
            self.running -= 1


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiver]:
    """A receiver on a port of its own."""
    served = Receiver()
    app = web.Application()
    app.router.add_post("/{path:.*}", served.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    served.port = runner.addresses[0][1]
    try:
        yield served
    finally:
        await runner.cleanup()


__all__ = ["POOL", "Call", "Receiver", "Sale", "receiving"]
