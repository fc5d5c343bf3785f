"""The envelope: what its schema says, what CloudEvents says, and one id at every attempt."""

import json
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import jsonschema_rs
import pytest

from penstock import Event
from penstock.outbox.envelope import Envelope

SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "event-envelope.schema.json"
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
validate = jsonschema_rs.validator_for(
    json.loads(SCHEMA.read_text("utf-8")), validate_formats=True
).validate
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def _event(raw: bytes = b'{"a": 1}', headers: dict[str, str] | None = None) -> Event[object]:
    headers = headers or {}
    return Event(uuid4(), "orders.paid", None, headers, AT, "customer-7", uuid4(), raw)


def test_the_json_form_is_what_the_schema_says() -> None:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    event = _event(headers={"traceparent": TRACE, "secret": "x", "penstock-version": "3"})
    sent = json.loads(Envelope.of(event, source="/shop").json())
    validate(sent)
    assert (sent["id"], sent["type"], sent["source"]) == (str(event.id), "orders.paid", "/shop")
    assert (sent["occurred_at"], sent["schema_version"]) == ("2026-01-02T03:04:05Z", 3)
    assert sent["data"] == {"a": 1}
    assert "secret" not in str(sent)
    bare = Event(uuid4(), "t", None, {}, AT, raw=b"[]")
    assert set(json.loads(Envelope.of(bare, source="/").json())) == set(schema["required"])


def test_a_payload_that_is_an_envelope_keeps_its_content_under_the_events_id() -> None:
    inner = Envelope.of(_event(), source="/bank").json()
    event = _event(inner)
    sent = json.loads(Envelope.of(event, source="/relay").json())
    validate(sent)
    assert (sent["id"], sent["source"], sent["data"]) == (str(event.id), "/bank", {"a": 1})


@pytest.mark.parametrize(
    "change",
    [
        {"occurred_at": "2026-01-02T03:04:05"},
        {"occurred_at": "yesterday"},
        {"schema_version": "three"},
        {"schema_version": 0},
        {"type": None},
        {"type": "x" * 201},
        {"source": ""},
        {"ordering_key": "x" * 201},
    ],
    ids=["zone", "time", "number", "version", "type", "long type", "source", "key"],
)
def test_what_only_looks_like_an_envelope_is_sent_in_one(change: dict[str, object]) -> None:
    inner = json.loads(Envelope.of(_event(), source="/bank").json()) | change
    sent = json.loads(Envelope.of(_event(json.dumps(inner).encode()), source="/relay").json())
    validate(sent)
    assert (sent["source"], sent["data"]) == ("/relay", inner)
    assert sent["occurred_at"] == "2026-01-02T03:04:05Z"


def test_cloud_events_in_both_forms() -> None:
    event = _event(headers={"traceparent": TRACE})
    envelope = Envelope.of(event, source="/shop")
    headers = envelope.cloud_headers()
    assert headers == {
        "ce-specversion": "1.0",
        "ce-id": str(event.id),
        "ce-type": "orders.paid",
        "ce-source": "/shop",
        "ce-time": "2026-01-02T03:04:05Z",
        "ce-schemaversion": "1",
        "ce-partitionkey": "customer-7",
        "ce-tenant": str(event.tenant),
        "ce-traceparent": TRACE,
    }
    body = json.loads(envelope.cloud_event())
    assert body.pop("data") == {"a": 1}
    assert body.pop("datacontenttype") == "application/json"
    assert body == {name.removeprefix("ce-"): value for name, value in headers.items()}
