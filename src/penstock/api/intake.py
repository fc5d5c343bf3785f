"""Intake over HTTP: the seed's routes as its clients call them, and plain ones of our own.

The claim is plain ASGI: on that route every microsecond is multiplied by a crowd.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar, assert_never
from uuid import UUID

import asyncpg
import msgspec

from penstock.api import asgi
from penstock.api.asgi import ClientGone, Receive, Scope, Send, headers_of, read_body
from penstock.api.auth import Authenticator, Principal, Role
from penstock.api.problems import Answer, problem, rest_error
from penstock.intake.answers import (
    Busy,
    LimitReached,
    NotOpen,
    ReserveAnswer,
    Reserved,
    SoldOut,
    State,
)
from penstock.intake.desk import Desk
from penstock.intake.errors import SaleBusy, SaleLimitReached, SaleNotOpen, SaleSoldOut
from penstock.intake.groups import Claim
from penstock.kernel.errors import DatabaseUnreachable, NotFound, PenstockError
from penstock.kernel.http_errors import RequestRefused

CLAIM_BODY_MAX = 16 * 1024
BODY_TIMEOUT_S = 10.0
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)

T = TypeVar("T")
Form = Callable[[PenstockError], Answer]


class _RpcBody(msgspec.Struct, forbid_unknown_fields=True):
    p_pool_id: str
    p_user_id: str | None = None
    p_request_id: str | None = None


class _ReservationBody(msgspec.Struct, forbid_unknown_fields=True):
    user_id: str | None = None


_rpc_decoder = msgspec.json.Decoder(_RpcBody)
_reservation_decoder = msgspec.json.Decoder(_ReservationBody)


class ClaimRoute:
    """`POST /rest/v1/rpc/claim_resource_and_queue`: a JSON string, or null when sold out."""

    def __init__(self, desk: Desk, auth: Authenticator) -> None:
        self._desk = desk
        self._auth = auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one claim."""
        await respond(scope, receive, send, handle=self._answer, form=rest_error)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        if scope["method"] != "POST":
            raise RequestRefused("a claim is a POST", status=405)
        headers = headers_of(scope)
        principal = await self._auth.principal(headers)
        body = decoded(_rpc_decoder, await body_of(headers, receive, CLAIM_BODY_MAX))
        user = self._auth.acting_for(principal, body.p_user_id)
        request_id = body.p_request_id or headers.get("idempotency-key")
        claim = Claim(user, request_id, trace_of(headers))
        answer = await self._desk.reserve(body.p_pool_id, claim)
        if isinstance(answer, Reserved):
            return Answer(200, b'"%s"' % str(answer.resource_id).encode(), asgi.JSON)
        if isinstance(answer, SoldOut):
            return Answer(200, b"null", asgi.JSON)
        raise refusal_of(answer)


class ReservationRoute:
    """`POST /v1/pools/{pool}/reservations` with an `Idempotency-Key`."""

    def __init__(self, desk: Desk, auth: Authenticator) -> None:
        self._desk = desk
        self._auth = auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one reservation."""
        await respond(scope, receive, send, handle=self._answer, form=problem)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        headers = headers_of(scope)
        principal = await self._auth.principal(headers)
        request_id = headers.get("idempotency-key", "")
        if not request_id:
            raise RequestRefused(
                "there is no Idempotency-Key",
                todo="send one per purchase, and the same one when you repeat it.",
            )
        raw = await body_of(headers, receive, CLAIM_BODY_MAX)
        body = decoded(_reservation_decoder, raw) if raw else _ReservationBody()
        user = self._auth.acting_for(principal, body.user_id)
        pool = scope["path_params"]["pool"]
        answer = await self._desk.reserve(pool, Claim(user, request_id, trace_of(headers)))
        if not isinstance(answer, Reserved):
            raise refusal_of(answer)
        document = {
            "reservation_id": str(answer.reservation_id),
            "resource_id": str(answer.resource_id),
            "pool_id": pool,
            "state": State.RESERVED,
        }
        where = {"location": f"/v1/reservations/{answer.reservation_id}"}
        status = 200 if answer.again else 201
        return Answer(status, msgspec.json.encode(document), asgi.JSON, where)


class StatusRoute:
    """`GET /v1/reservations/{id}`: the owner's, or anybody's for the service role."""

    def __init__(self, desk: Desk, auth: Authenticator) -> None:
        self._desk = desk
        self._auth = auth

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one question."""
        await respond(scope, receive, send, handle=self._answer, form=problem)

    async def _answer(self, scope: Scope, _receive: Receive) -> Answer:
        principal = await self._auth.principal(headers_of(scope))
        wanted = uuid_of(scope["path_params"]["reservation_id"])
        found = await self._desk.status(wanted)
        if found is None or not may_see(principal, found[1]):
            raise NotFound(f"no reservation {wanted}")  # another's looks like none at all
        state = found[0]
        document = {
            "reservation_id": str(state.reservation_id),
            "resource_id": str(state.resource_id),
            "pool_id": state.pool,
            "state": state.state,
            "reserved_at": state.reserved_at,
            "hold_expires_at": state.hold_expires_at,
            "confirmed_at": state.confirmed_at,
        }
        return Answer(200, msgspec.json.encode(document), asgi.JSON)


async def respond(
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    handle: Callable[[Scope, Receive], Awaitable[Answer]],
    form: Form,
) -> None:
    """Run a route and send what came of it; whatever goes wrong has an answer in the one form."""
    try:
        answer = await handle(scope, receive)
    except ClientGone:
        return
    except PenstockError as error:
        answer = form(error)
    except (asyncpg.PostgresError, TimeoutError):
        # The database did not say what became of it: never a false no.
        answer = form(DatabaseUnreachable())
    await asgi.respond(
        send,
        answer.status,
        answer.body,
        content_type=answer.content_type,
        headers=answer.headers,
    )


async def body_of(headers: Mapping[str, str], receive: Receive, limit: int) -> bytes:
    """The body, bounded in size and time."""
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await read_body(headers, receive, limit)
    except TimeoutError:
        raise RequestRefused("the body did not arrive in time", status=408) from None


def decoded(decoder: "msgspec.json.Decoder[T]", body: bytes) -> T:
    """The body as its type; raises RequestRefused with what is wrong."""
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestRefused(f"the body cannot be read: {error}"[:300]) from None


def trace_of(headers: Mapping[str, str]) -> str | None:
    """The caller's trace context as JSON, if it is well-formed: it is sent on to others."""
    parent = headers.get("traceparent")
    if parent is None or not _TRACEPARENT.fullmatch(parent):
        return None
    return f'{{"traceparent":"{parent}"}}'


def refusal_of(answer: ReserveAnswer) -> PenstockError:
    """The error that says no."""
    match answer:
        case SoldOut():
            return SaleSoldOut()
        case Busy():
            return SaleBusy()
        case LimitReached():
            return SaleLimitReached()
        case NotOpen():
            return SaleNotOpen()
        case Reserved():
            raise AssertionError("this is a yes")
        case _:
            assert_never(answer)


def may_see(principal: Principal, owner: str) -> bool:
    """Whether a caller may know of what belongs to a user."""
    return principal.role is Role.SERVICE or (
        principal.role is Role.USER and principal.subject == owner
    )


def uuid_of(text: str) -> UUID:
    """An id from a path; what is none does not exist."""
    try:
        return UUID(text)
    except ValueError:
        raise NotFound("there is no such id") from None
