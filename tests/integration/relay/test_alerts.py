"""Alerts end to end: a dead letter reaches a webhook, PagerDuty and Sentry in their own words."""

import json
from typing import Any
from uuid import UUID

import pytest
from tests.integration.relay.conftest import SECRET
from tests.support.destinations import (
    Connection,
    publish,
    publish_many,
    put,
    states,
    work_off,
    working,
)
from tests.support.receiver import Receiver
from tests.support.waiting import until

from penstock import Penstock
from penstock.kernel.secrets import Secret
from penstock.kernel.settings import Settings, with_values
from penstock.outbox.sinks.factory import make_sink
from penstock.outbox.sinks.sink import Destination

ALERT = "penstock.alert"
ROUTING_KEY = "R0UT1NGK3YR0UT1NGK3YR0UT1NGK3Y00"
DSN = "https://abc0public0key@o1.ingest.example/42"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER_ROUTING_KEY", ROUTING_KEY)
    monkeypatch.setenv("SENTRY_DSN", DSN)
    monkeypatch.setenv("HOOK_SECRET", SECRET)


async def _one_dead_event(conn: Connection, receiver: Receiver) -> UUID:
    """An event that its receiver refuses for good."""
    await put(conn, "shop", config={"url": receiver.url("/shop")})
    return await publish(conn, n=1)


async def test_a_dead_letter_is_alerted_to_every_pager(
    ps: Penstock, conn: Connection, receiver: Receiver
) -> None:
    receiver.answering = lambda one: 422 if one.path == "/shop" else 202
    await put(
        conn,
        "hook",
        topic=ALERT,
        config={"url": receiver.url("/hook")},
        secrets=["env:HOOK_SECRET"],
    )
    await put(
        conn,
        "pager",
        topic=ALERT,
        config={"url": receiver.url("/v2/enqueue"), "format": "pagerduty"},
        secrets=["env:PAGER_ROUTING_KEY"],
    )
    await put(
        conn,
        "sentry",
        topic=ALERT,
        config={"url": receiver.url("/api/42/envelope/"), "format": "sentry"},
        secrets=["env:SENTRY_DSN"],
    )
    event = await _one_dead_event(conn, receiver)
    await work_off(ps)
    await work_off(ps)
    (hook,), (pager,), (sentry,) = (
        receiver.at("/hook"),
        receiver.at("/v2/enqueue"),
        receiver.at("/api/42/envelope/"),
    )
    alert = hook.document["data"]
    assert hook.document["type"] == ALERT
    assert "webhook-signature" in hook.headers
    assert (alert["topic"], alert["error_code"], alert["count"]) == ("orders.paid", "HTTP_422", 1)
    assert alert["examples"] == [str(event)]
    _check_pagerduty(pager.document, alert)
    assert "webhook-signature" not in pager.headers
    _check_sentry(sentry.body, sentry.headers["x-sentry-auth"], hook.id)
    assert sentry.headers["content-type"] == "application/x-sentry-envelope"


def _check_pagerduty(document: dict[str, Any], alert: dict[str, Any]) -> None:
    assert document["routing_key"] == ROUTING_KEY
    assert document["event_action"] == "trigger"
    assert document["dedup_key"] == f"penstock/outbox/orders.paid/DEAD/{alert['fingerprint']}"
    payload = document["payload"]
    assert payload["summary"] == "1 event of orders.paid is dead (HTTP_422)"
    assert (payload["severity"], payload["source"]) == ("error", "penstock")
    assert payload["custom_details"]["examples"] == alert["examples"]


def _check_sentry(body: bytes, auth: str, alert_id: str) -> None:
    header, item, event, end = body.split(b"\n")
    assert end == b""
    hexadecimal = UUID(alert_id).hex
    assert json.loads(header)["event_id"] == hexadecimal
    assert json.loads(item) == {
        "type": "event",
        "content_type": "application/json",
        "length": len(event),
    }
    told = json.loads(event)
    assert (told["event_id"], told["level"]) == (hexadecimal, "error")
    assert told["fingerprint"][:3] == ["penstock", "outbox", "orders.paid"]
    assert told["tags"]["error_code"] == "HTTP_422"
    assert "sentry_key=abc0public0key" in auth
    assert b"abc0public0key" not in body


async def test_a_thousand_dead_events_are_one_call_to_the_pager(
    ps: Penstock, conn: Connection, receiver: Receiver
) -> None:
    receiver.answering = lambda one: 422 if one.path == "/shop" else 202
    await put(
        conn,
        "pager",
        topic=ALERT,
        config={"url": receiver.url("/v2/enqueue"), "format": "pagerduty"},
        secrets=["env:PAGER_ROUTING_KEY"],
    )
    await put(conn, "shop", config={"url": receiver.url("/shop")}, concurrency=50)
    await conn.execute("update penstock.schedule set every_s = 3600 where job = 'outbox_alerts'")
    await publish_many(conn, 1_000)
    await work_off(ps)
    await work_off(ps)
    assert len(receiver.at("/shop")) == 1_000
    assert await conn.fetchval("select sum(total) from public.outbox_alerts") == 1_000
    assert len(receiver.at("/v2/enqueue")) == 1
    told = await conn.fetchval(
        "select sum((payload ->> 'count')::int) from app.outbox_all where topic = $1", ALERT
    )
    assert told == 1_000


async def test_an_alert_service_that_is_down_is_told_later_under_the_same_id(
    ps: Penstock, conn: Connection, receiver: Receiver
) -> None:
    down = True
    receiver.answering = lambda one: 422 if one.path == "/shop" else (503 if down else 202)
    await conn.execute("update penstock.queue_config set backoff_base_s = 0.1, backoff_cap_s = 0.1")
    await put(conn, "hook", topic=ALERT, config={"url": receiver.url("/hook")}, breaker_after=1000)
    await _one_dead_event(conn, receiver)

    async def is_dead() -> bool:
        return await states(conn, "hook") == {"DEAD": 1}

    async with working(ps):
        await until(is_dead, "the alert's own attempts are used up", within_s=20)
    assert await conn.fetchval("select count(*) from public.outbox_alerts") == 1  # no loop
    down = False
    await conn.execute("update public.outbox set dead_at = dead_at - interval '16 minutes'")
    assert await conn.fetchval("select app.outbox_tend_alerts()") == 1
    await work_off(ps)
    assert await states(conn, "hook") == {"DELIVERED": 1}
    assert len(receiver.ids("/hook")) == 1


@pytest.mark.parametrize("form", ["pagerduty", "sentry"])
def test_a_pager_without_its_key_is_refused(form: str) -> None:
    settings = with_values(Settings(), http_signing_secret=Secret("not for this"))
    config = {"url": "https://events.example/v2/enqueue", "format": form}
    with pytest.raises(Exception, match="secret_refs"):
        make_sink(Destination("pager", "http", config), settings)
