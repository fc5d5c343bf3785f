"""Errors over HTTP: problem+json in the one form of all surfaces; PostgREST's own on /rest/v1."""

import msgspec

from penstock.kernel.errors import DatabaseUnreachable, NotPermitted, PenstockError
from penstock.kernel.http_errors import NotAuthenticated, RequestRefused

PROBLEM_JSON = "application/problem+json"
RETRY_AFTER_S = 1
UNKNOWN_OUTCOME = "the outcome is unknown; retry with the same key"


class Answer(msgspec.Struct, frozen=True):
    """A whole answer, ready to be sent by whichever route."""

    status: int
    body: bytes
    content_type: str
    headers: dict[str, str] = {}


def problem(error: PenstockError) -> Answer:
    """The problem+json form of an error."""
    status = status_of(error)
    document = {
        "type": f"urn:penstock:error:{error.code}",
        "title": error.entry.title,
        "status": status,
        "detail": _what(error),
        "code": error.code,
        "happened": error.happened,
        "todo": error.todo,
        "retryable": error.retryable,
    }
    return Answer(status, msgspec.json.encode(document), PROBLEM_JSON, _headers(error))


def rest_error(error: PenstockError) -> Answer:
    """The form that PostgREST's clients read: code, message, details, hint."""
    status = status_of(error)
    document = {
        "code": error.code,
        "message": _what(error),
        "details": error.happened,
        "hint": error.todo,
    }
    body = msgspec.json.encode(document)
    return Answer(status, body, "application/json", _headers(error))


def status_of(error: PenstockError) -> int:
    """The HTTP status for an error."""
    return error.status if isinstance(error, RequestRefused) else error.entry.http_status


def _what(error: PenstockError) -> str:
    """What callers are told: nothing about hosts, roles or tables of ours."""
    if isinstance(error, DatabaseUnreachable):
        return UNKNOWN_OUTCOME
    if isinstance(error, NotPermitted):
        return "the server may not do this; see its log"
    return error.what


def _headers(error: PenstockError) -> dict[str, str]:
    if isinstance(error, NotAuthenticated):
        return {"www-authenticate": "Bearer"}
    if error.retryable:
        return {"retry-after": str(RETRY_AFTER_S)}
    return {}
