"""Alerts in the words of Sentry and PagerDuty: what an HTTP destination with that format posts.

Both know a repetition when they see one: Sentry by the event's id, PagerDuty by the kind of error,
so that one incident gathers all alerts of a kind.
"""

from typing import Any
from urllib.parse import urlsplit

import msgspec

from penstock.kernel.secrets import Secret
from penstock.kernel.version import VERSION
from penstock.outbox.envelope import Envelope

SUMMARY_LENGTH_MAX = 500
DEDUP_KEY_LENGTH_MAX = 255  # PagerDuty's limit
TAG_LENGTH_MAX = 200  # Sentry's limit
_THINGS = {"outbox": "event", "inbox": "webhook", "payments": "payment", "intake": "reservation"}
_WORDS = {"DEAD": "dead", "HELD": "held, their outcome is unknown"}


class _Alert(msgspec.Struct):
    """The payload of an alert, see app.outbox_send_alert."""

    queue: str
    topic: str
    state: str
    fingerprint: str
    count: int
    error_code: str | None = None
    error: str | None = None

    @property
    def kind(self) -> list[str]:
        """What makes two alerts one incident."""
        return ["penstock", self.queue, self.topic, self.state, self.fingerprint]

    def summary(self) -> str:
        """The alert in one sentence."""
        thing = _THINGS.get(self.queue, "item")
        things = thing if self.count == 1 else f"{thing}s"
        topics = "several topics" if self.topic == "*" else self.topic
        verb = "is" if self.count == 1 else "are"
        what = _WORDS.get(self.state, self.state.lower())
        why = ": ".join(part for part in (self.error_code, self.error) if part)
        text = f"{self.count} {things} of {topics} {verb} {what}" + (f" ({why})" if why else "")
        return text[:SUMMARY_LENGTH_MAX]


def pagerduty(envelope: Envelope, key: Secret) -> tuple[bytes, dict[str, str]]:
    """Body and headers for PagerDuty's Events API, version 2; the key is the routing key."""
    alert = _alert_of(envelope)
    document = {
        "routing_key": key.reveal(),
        "event_action": "trigger",
        "dedup_key": "/".join(alert.kind)[:DEDUP_KEY_LENGTH_MAX],
        "client": "penstock",
        "payload": {
            "summary": alert.summary(),
            "source": envelope.source,
            "severity": "error",
            "timestamp": envelope.occurred_at,
            "component": alert.queue,
            "group": alert.topic,
            "class": alert.error_code or alert.state,
            "custom_details": _details(envelope),
        },
    }
    return msgspec.json.encode(document), {"content-type": "application/json"}


def sentry(envelope: Envelope, key: Secret) -> tuple[bytes, dict[str, str]]:
    """Body and headers for Sentry's envelope endpoint; the key is a DSN, or the key in one."""
    alert = _alert_of(envelope)
    tags = {"queue": alert.queue, "topic": alert.topic, "state": alert.state}
    if alert.error_code is not None:
        tags["error_code"] = alert.error_code
    event = {
        "event_id": envelope.id.hex,
        "timestamp": envelope.occurred_at,
        "platform": "other",
        "level": "error",
        "logger": "penstock",
        "message": {"formatted": alert.summary()},
        "fingerprint": alert.kind,
        "tags": {name: value[:TAG_LENGTH_MAX] for name, value in tags.items()},
        "extra": {"source": envelope.source, **_details(envelope)},
    }
    body = msgspec.json.encode(event)
    item = {"type": "event", "content_type": "application/json", "length": len(body)}
    lines = (msgspec.json.encode({"event_id": envelope.id.hex}), msgspec.json.encode(item), body)
    auth = f"sentry_version=7, sentry_client=penstock/{VERSION}, sentry_key={_public(key)}"
    return b"\n".join(lines) + b"\n", {
        "content-type": "application/x-sentry-envelope",
        "x-sentry-auth": f"Sentry {auth}",
    }


def _public(key: Secret) -> str:
    text = key.reveal()
    return urlsplit(text).username or "" if "://" in text else text


def _alert_of(envelope: Envelope) -> _Alert:
    """The alert; an event of another kind is told by its type alone."""
    try:
        return msgspec.json.decode(envelope.data, type=_Alert)
    except msgspec.ValidationError:
        return _Alert("outbox", envelope.type, "EVENT", str(envelope.id), 1)


def _details(envelope: Envelope) -> dict[str, Any]:
    try:
        details = msgspec.json.decode(envelope.data, type=dict[str, Any])
    except msgspec.ValidationError:
        details = {"data": envelope.data}
    return {"alert_id": str(envelope.id), **details}
