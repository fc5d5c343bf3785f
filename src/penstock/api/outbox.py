"""`POST /api/internal/outbox-relay`: a hint that an outbox table has a new row.

The body of a Supabase database webhook, or `{"table": "schema.name", "id": "…"}`. Only the name and
the id are read from it; the row is looked up. A lost hint costs nothing but time: workers poll.
"""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import asdict
from time import monotonic
from typing import Protocol
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from penstock.api.app import answering
from penstock.api.asgi import headers_of
from penstock.api.problems import Answer, problem
from penstock.api.requests import body_of, decoded
from penstock.kernel.errors import DatabaseUnreachable, NotFound, WrongUsage
from penstock.kernel.http_errors import NotAuthenticated, RequestRefused
from penstock.kernel.lending import Lending
from penstock.kernel.report import WorkReport
from penstock.kernel.secrets import matches_any
from penstock.outbox import store
from penstock.outbox.model import QUEUE

PATH = "/api/internal/outbox-relay"
HEADER = "x-outbox-secret"
# A webhook carries the whole row, of which we read the id; an event has at most 1 MiB.
BODY_MAX = 4 * 1024 * 1024
RUN_S = 8.0
RUN_ITEMS_MAX = 1000
GRACE_S = 30.0
_TABLE = re.compile(r"[A-Za-z0-9_]{1,63}\.[A-Za-z0-9_]{1,63}", re.ASCII)


class HintRecord(msgspec.Struct):
    """The row of a database webhook, of which only the id is read."""

    id: UUID


class Hint(msgspec.Struct):
    """That a table has a new row, in either of two forms."""

    table: str
    schema: str | None = None
    id: UUID | None = None
    record: HintRecord | None = None

    @property
    def row_id(self) -> UUID | None:
        """The id, wherever it stands."""
        return self.record.id if self.record is not None else self.id

    @property
    def qualified(self) -> str:
        """Schema and table, as the list of relay tables has them."""
        return self.table if self.schema is None else f"{self.schema}.{self.table}"


_decoder = msgspec.json.Decoder(Hint)


class Relayer(Protocol):
    """What the route asks of the application."""

    def ring(self, queue: str) -> bool:
        """Wake a worker of this process; false when none works the queue."""
        ...

    async def run_once(
        self, queue: str, *, deadline_s: float = 50.0, limit: int | None = None
    ) -> WorkReport:
        """Work a queue off once, within bounds."""
        ...


class OutboxRelay:
    """Takes hints. However many come at once, one run at a time answers them."""

    def __init__(self, relayer: Relayer, lending: Lending) -> None:
        self._relayer = relayer
        self._lending = lending
        self._running = False
        self._again = False

    async def hint(self, request: Request) -> Answer:
        """`{status: idle | rung | running | ran, …}`; 404 for a table that is not relayed."""
        headers = headers_of(request.scope)
        if not self._knows(headers):
            refusal = problem(NotAuthenticated(f"{HEADER} is missing or wrong"))
            return Answer(401, refusal.body, refusal.content_type)
        hint = decoded(_decoder, await body_of(headers, request.receive, BODY_MAX))
        if hint.row_id is None:
            raise RequestRefused(
                "the body names no row", todo="send the webhook on INSERT, or table and id."
            )
        waiting = await self._waiting(hint.qualified, hint.row_id)
        if waiting is None:
            raise NotFound("this table is not relayed")
        return await self._wake() if waiting else _json(200, "idle")

    def _knows(self, headers: Mapping[str, str]) -> bool:
        shown = headers.get(HEADER, "")
        return matches_any(self._lending.settings.outbox_secrets, shown) and bool(shown)

    async def _waiting(self, table: str, row: UUID) -> bool | None:
        if not _TABLE.fullmatch(table):
            return None
        async with self._lending.database.connection() as conn:
            return await store.hint(conn, table, row)

    async def _wake(self) -> Answer:
        if self._relayer.ring(QUEUE):
            return _json(202, "rung")
        if self._running:
            self._again = True  # the row may have come after the last look of that run
            return _json(202, "running")
        self._running = True
        try:
            async with asyncio.timeout(RUN_S + GRACE_S):
                return _json(200, "ran", await self._run())
        except WrongUsage:
            return _json(202, "accepted")  # no handler here; workers elsewhere look by themselves
        except TimeoutError:
            raise DatabaseUnreachable from None
        finally:
            self._running = False

    async def _run(self) -> WorkReport:
        ends_at = monotonic() + RUN_S
        report = WorkReport()
        while (left_s := ends_at - monotonic()) > 0:
            self._again = False
            report += await self._relayer.run_once(QUEUE, deadline_s=left_s, limit=RUN_ITEMS_MAX)
            if not self._again:
                break
        return report


def _json(status: int, word: str, report: WorkReport | None = None) -> Answer:
    document = {"status": word} | ({} if report is None else asdict(report))
    return Answer(status, msgspec.json.encode(document), "application/json")


def outbox_routes(relayer: Relayer, lending: Lending) -> list[BaseRoute]:
    """The outbox's route."""
    relay = OutboxRelay(relayer, lending)
    return [Route(PATH, answering(relay.hint, problem), methods=["POST"])]
