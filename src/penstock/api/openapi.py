"""The HTTP interface as an OpenAPI document; bodies come from the types that decode them.

The document is a file of the documentation and is not served: it says nothing that a caller needs
at run time.
"""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from penstock.api.app import CLAIM_PATH
from penstock.api.functions import MESSAGES_MAX, DeadLetters
from penstock.api.inbox import PREFIX
from penstock.api.intake import ClaimBody, ReservationBody
from penstock.api.outbox import HEADER, PATH, Hint
from penstock.api.problems import PROBLEM_JSON
from penstock.api.tables import TABLES

Json: TypeAlias = dict[str, Any]

JSON = "application/json"
DLQ = "/functions/v1/admin-dlq"
_TEXT: Json = {"type": "string"}
_UUID: Json = {"type": "string", "format": "uuid"}
_WHOLE: Json = {"type": "integer", "minimum": 0, "maximum": 10**18 - 1}
_BEARER: list[Json] = [{"bearer": []}, {"apikey": []}]
_REFUSALS = {
    400: "It cannot be read, or makes no sense.",
    401: "The caller did not say who it is.",
    403: "The caller may not do this.",
    404: "There is no such thing, or it is another's.",
    405: "Another method is wanted.",
    408: "The body did not arrive in time.",
    409: "It is over: sold out, or the limit is reached.",
    413: "The body is too large.",
    415: "Compressed bodies are not taken.",
    422: "It was understood and cannot be done.",
    425: "It is too early: not open yet.",
    429: "Too much at once: try again later.",
    503: "The outcome is unknown: repeat it with the same key.",
}


class Problem(msgspec.Struct):
    """An error, in the form that all surfaces share."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    happened: str
    todo: str
    retryable: bool


class RestError(msgspec.Struct):
    """An error as PostgREST's clients read it."""

    code: str
    message: str
    details: str | None
    hint: str | None


class Reservation(msgspec.Struct):
    """A reservation and how far it has come."""

    reservation_id: str
    resource_id: str
    pool_id: str
    state: str


class Health(msgspec.Struct):
    """One word."""

    status: str


def document() -> Json:
    """The whole document."""
    schemas = _components()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": "1",
            "description": "Claims, webhooks and hints over HTTP. Errors are problem+json.",
        },
        "paths": {**_intake_paths(), **_functions_paths(), **_other_paths()},
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apikey": {"type": "apiKey", "in": "header", "name": "apikey"},
                "outbox_secret": {"type": "apiKey", "in": "header", "name": HEADER},
            },
        },
    }


def _components() -> Json:
    kinds = (ClaimBody, ReservationBody, DeadLetters, Hint)
    answers = (Problem, RestError, Reservation, Health)
    _, schemas = msgspec.json.schema_components(
        (*kinds, *answers), ref_template="#/components/schemas/{name}"
    )
    return schemas


def _intake_paths() -> Json:
    reserve = operation(
        "reserve",
        "Reserve a slot of a pool; repeating it with the same key gives the same slot.",
        answers={200: _content("Reservation"), 201: _content("Reservation")},
        body=_content("ReservationBody"),
        body_required=False,
        parameters=[_path("pool"), _parameter("Idempotency-Key", "header", _TEXT, required=True)],
    )
    status = operation(
        "reservation",
        "How far a reservation has come.",
        answers={200: _content("Reservation")},
        parameters=[_path("reservation_id", _UUID)],
    )
    claim = operation(
        "claim_resource_and_queue",
        "Claim a slot: its id, or null when sold out.",
        answers={200: {JSON: {"schema": {"type": ["string", "null"]}}}},
        body=_content("ClaimBody"),
        parameters=[_parameter("Idempotency-Key", "header", _TEXT)],
        error=_content("RestError"),
    )
    names = sorted({name for table in TABLES.values() for name in table.filters})
    read = operation(
        "read_table",
        "Rows of a table that may be read; filters are written eq.VALUE.",
        answers={number: {JSON: {"schema": {"type": "array"}}} for number in (200, 206)},
        parameters=[
            _path("table", {"enum": sorted(TABLES)}),
            *(_parameter(name, "query", _TEXT) for name in ("select", "order", *names)),
            *(_parameter(name, "query", {**_WHOLE, "maximum": 10**9 - 1}) for name in _PAGE),
            _parameter("Prefer", "header", _TEXT),
        ],
        error=_content("RestError"),
    )
    return {
        "/v1/pools/{pool}/reservations": {"post": reserve},
        "/v1/reservations/{reservation_id}": {"get": status},
        CLAIM_PATH: {"post": claim},
        "/rest/v1/{table}": {"get": read},
    }


_PAGE = ("limit", "offset")


def _functions_paths() -> Json:
    run = operation("bridge_worker", "Work the queue of claims off once.", answers={200: _object()})
    listing = operation(
        "dead_list",
        f"Dead letters by number, at most {MESSAGES_MAX}.",
        answers={200: _object()},
        parameters=[
            _parameter("pool_id", "query", _TEXT),
            _parameter("after", "query", _WHOLE),
            _parameter("limit", "query", _WHOLE),
        ],
    )
    acts = {
        f"{DLQ}/{verb}": {
            "post": operation(
                f"dead_{verb}", meaning, answers={200: _object()}, body=_content("DeadLetters")
            )
        }
        for verb, meaning in (
            ("replay", "Put dead letters back on the queue."),
            ("discard", "Give dead letters up for good."),
        )
    }
    return {"/functions/v1/bridge-worker": {"post": run}, DLQ: {"get": listing}, **acts}


def _other_paths() -> Json:
    hint = operation(
        "outbox_relay",
        "A hint that an outbox table has a new row.",
        answers={200: _object(), 202: _object()},
        body=_content("Hint"),
        security=[{"outbox_secret": []}],
    )
    receive = operation(
        "receive_webhook",
        "A delivery, signed as its provider signs; stored before it is answered.",
        answers={200: _anything()},
        body={
            JSON: {"schema": {}},
            "application/x-www-form-urlencoded": {
                "schema": {"type": "object", "additionalProperties": _TEXT}
            },
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
        parameters=[_path("source")],
        security=[],
    )
    handshake = operation(
        "webhook_handshake",
        "The handshake of providers that ask before they send.",
        answers={200: _anything()},
        parameters=[_path("source")],
        security=[],
    )
    health = {
        f"/{name}": {
            "get": operation(name, meaning, answers={200: _content("Health")}, security=[])
        }
        for name, meaning in (
            ("healthz", "Whether the process is alive."),
            ("readyz", "Whether the database answers and its schema fits."),
        )
    }
    metrics = operation("metrics", "Metrics for Prometheus.", answers={200: _anything()})
    return {
        PATH: {"post": hint},
        f"{PREFIX}{{source}}": {"post": receive, "get": handshake},
        **health,
        "/metrics": {"get": {**metrics, "security": [{}, *_BEARER]}},
    }


def operation(
    name: str,
    summary: str,
    *,
    answers: Mapping[int, Json],
    body: Json | None = None,
    body_required: bool = True,
    parameters: Sequence[Json] = (),
    security: Sequence[Json] = _BEARER,
    error: Json | None = None,
) -> Json:
    """One operation; every one may be refused in the same ways."""
    refused = error or {PROBLEM_JSON: {"schema": _reference("Problem")}}
    responses = {
        **{
            str(number): {"description": "Done.", "content": each}
            for number, each in answers.items()
        },
        **{
            str(number): {"description": meaning, "content": refused}
            for number, meaning in _REFUSALS.items()
        },
    }
    told: Json = {"operationId": name, "summary": summary, "responses": responses}
    told["security"] = list(security)
    if parameters:
        told["parameters"] = list(parameters)
    if body is not None:
        told["requestBody"] = {"required": body_required, "content": body}
    return told


def _reference(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _content(name: str) -> Json:
    return {JSON: {"schema": _reference(name)}}


def _object() -> Json:
    return {JSON: {"schema": {"type": "object"}}}


def _anything() -> Json:
    return {"*/*": {}}


def _path(name: str, schema: Json | None = None) -> Json:
    return _parameter(name, "path", schema or {**_TEXT, "minLength": 1}, required=True)


def _parameter(name: str, place: str, schema: Json, *, required: bool = False) -> Json:
    return {"name": name, "in": place, "required": required, "schema": schema}
