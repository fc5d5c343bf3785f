"""Webhooks over a real server: what is genuine is stored once and answered, nothing else is."""

import asyncio
import json
import os
import statistics
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial

import aiohttp
import pytest
from fastapi import FastAPI
from tests.support.payloads import HOSTILE, TAME
from tests.support.providers import CASES, Case
from tests.support.waiting import until
from tests.support.webhooks import Connection, Door, add_source, open_door, variable

from penstock.api import requests as reading
from penstock.application import Penstock
from penstock.inbox import store
from penstock.inbox.receive import still_genuine
from penstock.inbox.sources import sender_of
from penstock.testing import signed

STRIPE = CASES["stripe"]


def body_of(event_id: str, **more: object) -> bytes:
    return json.dumps({"id": event_id, "type": "payment_intent.succeeded", **more}).encode()


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_a_genuine_delivery_of_every_scheme_is_stored_and_verifies_again(
    door: Door, case: Case
) -> None:
    body = case.body("evt-1")
    for _ in range(3):
        answer = await door.deliver(case, body)
        assert (answer.status, answer.body) == (200, b"")
    (row,) = await door.events()
    assert row["status"] == "pending"
    assert row["provider"] == case.name
    source = next(s for s in await store.sources(door.conn) if s.source == case.name)
    (stored,) = await store.stored_events(door.conn, [row["id"]])
    assert stored.raw_body == body
    assert still_genuine(sender_of(source, os.environ), stored)


async def test_headers_are_stored_by_allow_list(door: Door) -> None:
    headers, body = signed("stripe", STRIPE.secret, body_of("evt_1"))
    sent = {
        **headers,
        "Authorization": "Bearer canary-1",
        "Cookie": "canary-2",
        "X-Forwarded-For": "canary-3",
        "User-Agent": "Stripe/1.0",
    }
    assert (await door.post("stripe", body, sent)).status == 200
    (row,) = await door.events()
    assert set(json.loads(row["headers"])) == {"content-type", "user-agent", "stripe-signature"}
    assert "canary" not in str(dict(row))
    assert row["signature"] == headers["stripe-signature"]


async def test_a_hundred_at_once_are_one_event_and_a_hundred_answers(door: Door) -> None:
    body = body_of("evt_1")
    answers = await asyncio.gather(*(door.deliver(STRIPE, body) for _ in range(100)))
    assert {answer.status for answer in answers} == {200}
    assert await door.count() == 1


async def test_many_at_once_are_all_stored(door: Door) -> None:
    bodies = [body_of(f"evt_{n}") for n in range(300)]
    answers = await asyncio.gather(*(door.deliver(STRIPE, body) for body in bodies))
    assert {answer.status for answer in answers} == {200}
    assert {row["raw_body"] for row in await door.events()} == set(bodies)


async def test_a_forged_event_does_not_keep_the_genuine_one_out(door: Door) -> None:
    body = body_of("evt_future")
    forged = await door.deliver(STRIPE, body_of("evt_future", forged=True), secret="guessed")
    assert forged.status == 401
    assert await door.count() == 0
    assert (await door.deliver(STRIPE, body)).status == 200
    (row,) = await door.events()
    assert row["raw_body"] == body
    audits = await door.conn.fetchval(
        "select count(*) from audit.audit_logs where operation <> 'put_source'"
    )
    assert audits == 0


async def test_nobody_learns_which_names_exist(door: Door) -> None:
    answers = []
    for source in ("stripe", "nobody", "NOBODY", "a" * 300, "%00", "twilio"):
        for headers in ({}, {"stripe-signature": "t=1,v1=00"}):
            answer = await door.post(source, body_of("evt_1"), headers)
            shown = {n: v for n, v in answer.headers.items() if n.lower() != "date"}
            answers.append((answer.status, answer.body, shown))
    assert all(answer == answers[0] for answer in answers)
    assert answers[0][0] == 401
    assert json.loads(answers[0][1])["code"] == "PN601"
    assert await door.count() == 0


async def test_an_unknown_name_takes_as_long_as_a_bad_signature(door: Door) -> None:
    body = b"x" * 900_000

    async def median(source: str) -> float:
        times = []
        for _ in range(15):
            started = time.perf_counter()
            await door.post(source, body, {"stripe-signature": f"t={int(time.time())},v1=00"})
            times.append(time.perf_counter() - started)
        return statistics.median(times)

    known, unknown = await median("stripe"), await median("nobody")
    assert 1 / 3 < known / unknown < 3, "one of the two does not hash the body"


async def test_another_body_under_the_same_id_is_recorded_and_the_first_kept(door: Door) -> None:
    first = body_of("evt_1")
    for body in (first, body_of("evt_1", other=True), body_of("evt_1", other=True)):
        assert (await door.deliver(STRIPE, body)).status == 200
    (row,) = await door.events()
    assert row["raw_body"] == first
    audits = await door.conn.fetch(
        "select row_data from audit.audit_logs where operation = 'conflicting_duplicate'"
    )
    assert [json.loads(audit["row_data"])["event_id"] for audit in audits] == ["evt_1"]
    counters = {c.label: c.total for c in await store.counters(door.conn) if c.metric == "conflict"}
    assert counters == {"conflicting_duplicate": 2}
    async with door.session.get(f"{door.base}/metrics") as answer:
        text = await answer.text()
    assert 'penstock_webhooks_total{result="conflicting_duplicate"} 2.0' in text
    assert 'penstock_webhooks_total{result="stored"} 1.0' in text


async def test_hostile_bodies_are_stored_dead_and_harm_nobody(door: Door) -> None:
    neighbours = [body_of(f"good_{n}") for n in range(20)]
    answers = await asyncio.gather(
        *(door.deliver(STRIPE, body) for body in [*HOSTILE.values(), *neighbours])
    )
    assert {answer.status for answer in answers} == {200}
    rows = {row["raw_body"]: row for row in await door.events()}
    assert set(rows) == {*HOSTILE.values(), *neighbours}
    for name, body in HOSTILE.items():
        row = rows[body]
        assert (row["status"], row["payload"], row["error_code"]) == (
            "dead_letter",
            None,
            "payload_unrepresentable",
        ), name
    assert all(rows[body]["status"] == "pending" for body in neighbours)
    again = await asyncio.gather(*(door.deliver(STRIPE, body) for body in HOSTILE.values()))
    assert {answer.status for answer in again} == {200}
    assert await door.count() == len(rows)


async def test_bodies_that_only_look_hostile_are_stored_alive(door: Door) -> None:
    for number, body in enumerate(TAME.values()):
        document = b'{"id":"evt_%d",' % number + body[1:]
        assert (await door.deliver(STRIPE, document)).status == 200
    rows = await door.events()
    assert [row["status"] for row in rows] == ["pending"] * len(TAME)
    for row in rows:
        exact = partial(json.loads, parse_float=Decimal, parse_int=Decimal)
        assert exact(row["payload"]) == exact(row["raw_body"])


async def test_a_large_body_is_refused_before_it_is_read(door: Door) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 100_000_000:
            sent += 65536
            yield b"x" * 65536

    limit = 3 * 1024 * 1024  # of the source that takes the largest; the same for every name
    for source in ("stripe", "nobody"):
        answer = await door.post(source, b"x" * (limit + 1))
        assert answer.status == 413
        try:
            assert (await door.post(source, endless())).status == 413
        except aiohttp.ClientError:
            assert sent > 0  # the server hung up before the answer was read
    assert sent < 100_000_000
    exact = body_of("evt_1")
    fits = exact[:-1] + b" " * (1024 * 1024 - len(exact)) + b"}"
    assert (await door.deliver(STRIPE, fits)).status == 200
    assert (await door.deliver(STRIPE, fits[:-1] + b" }")).status == 413
    assert await door.count() == 1


async def test_chunks_are_put_together(door: Door) -> None:
    headers, body = signed("stripe", STRIPE.secret, body_of("evt_1"))

    async def bytewise() -> AsyncIterator[bytes]:
        for byte in body:
            yield bytes([byte])

    assert (await door.post("stripe", bytewise(), headers)).status == 200
    (row,) = await door.events()
    assert row["raw_body"] == body


async def test_a_body_that_never_ends_is_given_up(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BODY_TIMEOUT_S", 0.3)
    host, port = door.base.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /webhooks/stripe HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n12345")
    status = await asyncio.wait_for(reader.readline(), 5)
    writer.close()
    assert b" 408 " in status


@pytest.mark.parametrize("encoding", ["gzip", "br", "identity"])
async def test_compressed_bodies_are_refused(door: Door, encoding: str) -> None:
    headers, body = signed("stripe", STRIPE.secret, body_of("evt_1"))
    answer = await door.post("stripe", body, {**headers, "Content-Encoding": encoding})
    assert answer.status == 415
    assert await door.count() == 0


async def test_other_methods_are_refused(door: Door) -> None:
    async with door.session.put(f"{door.base}/webhooks/stripe", data=b"") as answer:
        assert answer.status == 405
    assert (await door.get("stripe", "")).status == 401


async def test_old_and_future_deliveries_are_refused(door: Door) -> None:
    now = datetime.now(UTC)
    for seconds, status in ((-310, 401), (310, 401), (-290, 200), (290, 200)):
        at = now + timedelta(seconds=seconds)
        assert (await door.deliver(STRIPE, body_of(f"evt_{seconds}"), at=at)).status == status
    assert await door.count() == 2


async def test_a_source_over_its_rate_is_told_to_wait(door: Door) -> None:
    await add_source(door.conn, STRIPE, options={"rate_per_s": 5})
    forged = [door.deliver(STRIPE, body_of("x"), secret="wrong") for _ in range(20)]
    await asyncio.gather(*forged)
    answers = await asyncio.gather(*(door.deliver(STRIPE, body_of(f"evt_{n}")) for n in range(30)))
    good = [answer for answer in answers if answer.status == 200]
    told = [answer for answer in answers if answer.status == 429]
    assert len(good) + len(told) == 30
    assert 5 <= len(good) <= 15
    assert json.loads(told[0].body)["code"] == "PN602"
    assert told[0].headers["retry-after"]
    assert await door.count() == len(good)


async def test_a_source_with_a_full_backlog_is_told_to_wait(door: Door) -> None:
    await add_source(door.conn, STRIPE, max_backlog=3)
    statuses = [(await door.deliver(STRIPE, body_of(f"evt_{n}"))).status for n in range(5)]
    assert statuses == [200, 200, 200, 429, 429]
    assert (await door.deliver(CASES["slack"], CASES["slack"].body())).status == 200
    assert await door.count() == 4


async def test_a_source_can_be_added_rotated_and_disabled_while_running(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    await door.deliver(STRIPE, body_of("evt_1"))
    monkeypatch.setenv(variable("new"), "whsec_new")
    await door.conn.execute(
        "select webhook.rotate_source('stripe', $1, 'test', null)", f"env:{variable('new')}"
    )

    async def taken(event_id: str, secret: str) -> bool:
        return (await door.deliver(STRIPE, body_of(event_id), secret=secret)).status == 200

    await until(lambda: taken("evt_new", "whsec_new"), "the new secret is known", within_s=5)
    assert await taken("evt_old", STRIPE.secret)
    await door.conn.execute("update webhook_endpoints set enabled = false where source = 'stripe'")
    # The statement itself looks at the row, so a source that is off takes nothing, at once.
    assert (await door.deliver(STRIPE, body_of("evt_2"))).status == 401
    assert await door.count() == 3


async def test_handshakes_are_answered_and_store_nothing(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable("token"), "mine")
    refs = {"verify_token_refs": [f"env:{variable('token')}"]}
    await add_source(door.conn, CASES["whatsapp"], options=refs)
    query = "hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token="
    answer = await door.get("whatsapp", query + "mine")
    assert (answer.status, answer.body) == (200, b"1158201444")
    assert answer.headers["content-type"].startswith("text/plain")
    assert (await door.get("whatsapp", query + "other")).status == 401
    assert (await door.post("daily", b'{"test":"test"}')).status == 200
    assert (await door.post("not-there-yet", b'{"test":"test"}')).status == 200
    challenge = b'{"type":"url_verification","challenge":"c-1"}'
    assert (await door.deliver(CASES["slack"], challenge)).body == b"c-1"
    assert (await door.post("slack", challenge)).status == 401
    assert (await door.deliver(CASES["github"], b"{}", event_type="ping")).body == b"pong"
    assert await door.count() == 0


async def test_a_whatsapp_batch_is_stored_one_by_one(door: Door) -> None:
    statuses: list[object] = [{"id": f"wamid.{n}", "status": "sent"} for n in range(1000)]
    statuses[7] = "malformed"
    change = {"field": "messages", "value": {"metadata": {}, "statuses": statuses}}
    body = json.dumps({"object": "w", "entry": [{"id": "E", "changes": [change]}]}).encode()
    for _ in range(2):
        assert (await door.deliver(CASES["whatsapp"], body)).status == 200
    rows = await door.events()
    assert len(rows) == 1000
    assert [row["status"] for row in rows].count("dead_letter") == 1
    (whole,) = await door.conn.fetch("select raw_body from webhook.bodies")
    assert whole["raw_body"] == body


async def test_mounted_alone_it_shows_nothing_else(
    database_url: str, conn: Connection, secrets: None
) -> None:
    await add_source(conn, STRIPE)
    ps = Penstock(database_url)
    outer = FastAPI(lifespan=ps.lifespan())
    outer.mount("/hooks", ps.asgi(only={"inbox"}))
    async with open_door(outer, conn) as opened:
        headers, body = signed("stripe", STRIPE.secret, body_of("evt_1"))
        hooks = f"{opened.base}/hooks"
        async with opened.session.post(
            f"{hooks}/webhooks/stripe", data=body, headers=headers
        ) as answer:
            assert answer.status == 200
        for path in ("/metrics", "/healthz", "/rest/v1/inventory_slots", "/webhooks/a/b"):
            async with opened.session.get(hooks + path) as answer:
                assert answer.status == 404
        assert await opened.count() == 1
