"""`/functions/v1/*` and the table reads of `/rest/v1/*`: for workers, operators and back ends."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.api import tables
from penstock.api.asgi import headers_of
from penstock.api.auth import Authenticator, Role
from penstock.api.problems import Answer
from penstock.api.requests import body_of, decoded
from penstock.intake.bridge import RUN_S
from penstock.intake.desk import DeadEnding, Desk
from penstock.kernel.database import Database
from penstock.kernel.errors import DatabaseUnreachable
from penstock.kernel.http_errors import NotAllowed, RequestRefused
from penstock.kernel.settings import Settings

ADMIN_BODY_MAX = 64 * 1024
MESSAGES_MAX = 1000
GRACE_S = 10.0
OPERATOR = "admin-dlq"


class DeadLetters(msgspec.Struct, forbid_unknown_fields=True):
    """Which dead letters an operator means, and why."""

    msg_ids: list[int]
    reason: str = ""
    force: bool = False


_dead_decoder = msgspec.json.Decoder(DeadLetters)


class Functions:
    """The trigger of the bridge and the operators' door to the dead letters."""

    def __init__(self, desk: Desk, auth: Authenticator, settings: Settings) -> None:
        self._desk = desk
        self._auth = auth
        self._settings = settings

    async def bridge_worker(self, request: Request) -> Answer:
        """Work the queue off once: `{status, processed, dlq, total}`, or idle."""
        await self._auth.require_worker(headers_of(request.scope))
        try:
            async with asyncio.timeout(RUN_S + GRACE_S):
                report = await self._desk.bridge.run_once(deadline_s=RUN_S)
        except TimeoutError:
            raise DatabaseUnreachable from None
        return _json(report.document())

    async def dead_list(self, request: Request) -> Answer:
        """Dead letters of one pool or all, by number; `after` continues a page."""
        await self._auth.require_admin(headers_of(request.scope))
        query = request.query_params
        limit = min(_whole(query.get("limit", "100")), MESSAGES_MAX)
        pool = query.get("pool_id")
        if "\0" in (pool or ""):
            raise RequestRefused("a NUL is part of no pool's name")
        rows = await self._desk.dead_list(pool, after=_whole(query.get("after", "0")), limit=limit)
        messages = [dict(row) for row in rows]
        full = bool(messages) and len(messages) == limit
        following = messages[-1]["msg_id"] if full else None
        return _json({"messages": messages, "next_after": following})

    async def dead_replay(self, request: Request) -> Answer:
        """Put dead letters back on the queue, where their slot is still theirs."""
        body = await self._body(request)
        endings = await self._desk.replay(
            body.msg_ids, reason=body.reason or "replay by admin-dlq", operator=OPERATOR
        )
        return _endings("replayed", endings, {"replayed", "sold"})

    async def dead_discard(self, request: Request) -> Answer:
        """Give dead letters up for good."""
        body = await self._body(request)
        endings = await self._desk.discard(
            body.msg_ids,
            reason=body.reason or "discard by admin-dlq",
            operator=OPERATOR,
            force=body.force,
        )
        return _endings("discarded", endings, {"released", "retired", "removed", "sold"})

    async def _body(self, request: Request) -> DeadLetters:
        headers = headers_of(request.scope)
        await self._auth.require_admin(headers)
        raw = await body_of(headers, request.receive, ADMIN_BODY_MAX)
        body = decoded(_dead_decoder, raw)
        if not 1 <= len(body.msg_ids) <= MESSAGES_MAX:
            raise RequestRefused(f"msg_ids wants 1 to {MESSAGES_MAX} numbers")
        if not all(0 < number < 2**63 for number in body.msg_ids):
            raise RequestRefused("a number in msg_ids is out of range")
        if "\0" in body.reason:
            raise RequestRefused("a reason holds no NUL")
        return body


class TableReads:
    """`GET /rest/v1/{table}`: all rows for the service role, own rows for a user."""

    def __init__(
        self,
        engine: Database,
        ledger: Database | None,
        *,
        auth: Authenticator,
        settings: Settings,
    ) -> None:
        self._places = {"engine": engine, "ledger": ledger}
        self._auth = auth
        self._ledger_key = settings.ledger_service_role_key

    async def read(self, request: Request) -> Answer:
        """Rows as a JSON array; `Prefer: count=exact` adds the total to Content-Range."""
        table = tables.TABLES.get(request.path_params["table"])
        if table is None:
            raise RequestRefused("there is no such table to read", status=404)
        owner = await self._owner(request, table)
        query = tables.parse(table, request.url.query, owner=owner)
        database = self._places[table.place]
        if database is None:
            raise RequestRefused("no ledger database is named here", status=404)
        await database.open()  # a no-op when it is; the ledger opens when first asked
        exact = "count=exact" in request.headers.get("prefer", "")
        async with database.connection() as conn:
            rows = await tables.read(conn, query)
            total = await tables.count(conn, query) if exact else None
        partial = total is not None and len(rows) < total
        return Answer(
            206 if partial else 200,
            b"" if request.method == "HEAD" else msgspec.json.encode(rows),
            "application/json; charset=utf-8",
            {"content-range": tables.content_range(query, len(rows), total)},
        )

    async def _owner(self, request: Request, table: tables.Table) -> str | None:
        """Whose rows alone may be seen; None for all of them."""
        headers = headers_of(request.scope)
        if table.place == "ledger" and self._auth.bears(self._ledger_key, headers):
            return None
        principal = await self._auth.principal(headers)
        if principal.role is Role.SERVICE:
            return None
        if principal.role is Role.USER and table.owner is not None:
            return principal.subject
        raise NotAllowed("this needs the service role")


def _json(document: object) -> Answer:
    return Answer(200, msgspec.json.encode(document, enc_hook=str), "application/json")


def _endings(word: str, endings: Sequence[DeadEnding], good: set[str]) -> Answer:
    results = [asdict(ending) for ending in endings]
    return _json({word: sum(e.outcome in good for e in endings), "results": results})


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise RequestRefused("after and limit want whole numbers")
    return int(text)


def response_of(answer: Answer) -> Response:
    """An answer for Starlette."""
    return Response(
        answer.body,
        status_code=answer.status,
        media_type=answer.content_type,
        headers={"cache-control": "no-store", **answer.headers},
    )
