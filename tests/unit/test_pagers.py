"""What Sentry and PagerDuty are told of an alert, and of an event that is none."""

from datetime import UTC, datetime
from uuid import uuid4

import msgspec
import pytest

from penstock.kernel.secrets import Secret
from penstock.outbox.envelope import Envelope
from penstock.outbox.sinks.pagers import pagerduty, sentry


def _envelope(data: object) -> Envelope:
    raw = msgspec.Raw(msgspec.json.encode(data))
    return Envelope(uuid4(), "penstock.alert", "shop", datetime(2026, 5, 1, tzinfo=UTC), 1, raw)


def _alert(**changes: object) -> dict[str, object]:
    return {
        "queue": "outbox",
        "topic": "orders.paid",
        "state": "DEAD",
        "fingerprint": "0123456789ab",
        "count": 12,
        "error_code": "HTTP_503",
        "error": "upstream failed",
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "12 events of orders.paid are dead (HTTP_503: upstream failed)"),
        ({"count": 1, "error": None}, "1 event of orders.paid is dead (HTTP_503)"),
        ({"topic": "*", "error_code": None, "error": None}, "12 events of several topics are dead"),
        (
            {"state": "HELD"},
            "12 events of orders.paid are held, their outcome is unknown"
            " (HTTP_503: upstream failed)",
        ),
    ],
)
def test_the_summary_is_a_sentence(changes: dict[str, object], sentence: str) -> None:
    body, _ = pagerduty(_envelope(_alert(**changes)), Secret("key"))
    assert msgspec.json.decode(body)["payload"]["summary"] == sentence


def test_alerts_of_one_kind_have_one_key_and_those_of_another_do_not() -> None:
    def key(**changes: object) -> str:
        body, _ = pagerduty(_envelope(_alert(**changes)), Secret("key"))
        found: str = msgspec.json.decode(body)["dedup_key"]
        return found

    assert key() == key(count=99, error="upstream failed again")
    assert len({key(), key(topic="u"), key(state="HELD"), key(fingerprint="f")}) == 4
    assert len(key(topic="t" * 400)) == 255


@pytest.mark.parametrize("data", [{"order": 1}, ["a list"], "text", 7, None])
def test_an_event_that_is_no_alert_is_told_by_its_type(data: object) -> None:
    envelope = _envelope(data)
    document = msgspec.json.decode(pagerduty(envelope, Secret("key"))[0])
    assert document["payload"]["group"] == "penstock.alert"
    assert str(envelope.id) in document["dedup_key"]
    event = msgspec.json.decode(sentry(envelope, Secret("key"))[0].split(b"\n")[2])
    assert event["extra"]["alert_id"] == str(envelope.id)


@pytest.mark.parametrize("secret", ["pub1c", "https://pub1c@o1.ingest.example/7"])
def test_sentry_takes_a_key_or_a_whole_dsn(secret: str) -> None:
    _, headers = sentry(_envelope(_alert()), Secret(secret))
    assert headers["x-sentry-auth"].endswith("sentry_key=pub1c")


def test_a_long_error_is_cut() -> None:
    body, _ = sentry(_envelope(_alert(error="x" * 10_000)), Secret("key"))
    event = msgspec.json.decode(body.split(b"\n")[2])
    assert len(event["message"]["formatted"]) == 500
