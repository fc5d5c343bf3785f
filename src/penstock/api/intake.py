"""Intake over HTTP: the seed's routes as its clients call them, and plain ones of our own."""

import re
from collections.abc import Mapping
from typing import Any, assert_never
from uuid import UUID

import msgspec

from penstock.api import asgi
from penstock.api.asgi import Receive, Scope, Send, headers_of
from penstock.api.auth import Authenticator, Principal, Role
from penstock.api.problems import Answer, problem, rest_error
from penstock.api.requests import End, HotRoute, Whole, body_of, decoded, respond
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
from penstock.kernel.errors import NotFound, PenstockError
from penstock.kernel.gathering import Asker
from penstock.kernel.http_errors import RequestRefused

CLAIM_BODY_MAX = 16 * 1024
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII)


class ClaimBody(msgspec.Struct, forbid_unknown_fields=True):
    """A claim as the function's arguments."""

    p_pool_id: str
    p_user_id: str | None = None
    p_request_id: str | None = None


class ReservationBody(msgspec.Struct, forbid_unknown_fields=True):
    """For whom a reservation is; only a service names somebody."""

    user_id: str | None = None


_ASKED_FOR = (b"authorization", b"apikey", b"idempotency-key", b"traceparent")
_SOLD_OUT = Answer(200, b"null", asgi.JSON)
_rpc_decoder = msgspec.json.Decoder(ClaimBody)
_reservation_decoder = msgspec.json.Decoder(ReservationBody)


class ClaimRoute(HotRoute):
    """`POST /rest/v1/rpc/claim_resource_and_queue`: a JSON string, or null when sold out."""

    form = staticmethod(rest_error)

    def __init__(self, desk: Desk, auth: Authenticator) -> None:
        self._desk = desk
        self._auth = auth

    async def limit(self) -> int:
        """A claim is small."""
        return CLAIM_BODY_MAX

    async def answer(self, request: Whole) -> Answer:
        """Answer one claim."""
        headers = request.named_headers()
        pool, claim = self._wish(request, headers, await self._auth.principal(headers))
        answer = await self._desk.reserve(pool, claim)
        told = self._end(answer)
        if told is None:
            raise refusal_of(answer)
        return told

    def begin(self, request: Whole, asker: Asker[Any]) -> End | None:
        """Put a claim in line whose token needs no key to be fetched."""
        headers = request.named_headers(_ASKED_FOR)
        principal = self._auth.quick_principal(headers)
        if principal is None:
            return None
        self._desk.put(*self._wish(request, headers, principal), asker)
        return self._end

    def _end(self, result: ReserveAnswer) -> Answer | None:
        """A yes or a no; what is neither is asked again."""
        if isinstance(result, Reserved):
            return Answer(200, b'"%s"' % str(result.resource_id).encode(), asgi.JSON)
        return _SOLD_OUT if isinstance(result, SoldOut) else None

    def _wish(
        self, request: Whole, headers: Mapping[str, str], principal: Principal
    ) -> tuple[str, Claim]:
        if request.method != "POST":
            raise RequestRefused("a claim is a POST", status=405)
        if len(request.body) > CLAIM_BODY_MAX:
            raise asgi.too_large(CLAIM_BODY_MAX)
        body = decoded(_rpc_decoder, request.body)
        user = self._auth.acting_for(principal, body.p_user_id)
        request_id = body.p_request_id or headers.get("idempotency-key")
        return body.p_pool_id, Claim(user, request_id, trace_of(headers))


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
        body = decoded(_reservation_decoder, raw) if raw else ReservationBody()
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
