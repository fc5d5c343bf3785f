"""Webhooks over a real socket: what is sent, how it is signed, and what answers mean."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
from tests.integration.relay.conftest import OTHER_SECRET, SECRET
from tests.support.deliveries import delivery, destination
from tests.support.destinations import Connection, publish, put, states, work_off, working
from tests.support.receiver import Received, Receiver
from tests.support.waiting import until, until_true

from penstock import Penstock
from penstock.kernel.settings import Settings, with_values
from penstock.kernel.verdict import DONE
from penstock.outbox.sinks.http import make


def _verified(one: Received, secret: str) -> Any:
    return Webhook(secret).verify(one.body, dict(one.headers))


async def test_an_event_with_a_configured_route_only_is_posted_and_signed(
    ps: Penstock, conn: Connection, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    config = {"url": receiver.url(), "headers": {"x-shop": "blue"}}
    await put(conn, "acme", config=config, secrets=["env:HOOK_SECRET"])
    event = await publish(conn, amount=990, key="customer-7")
    report = await work_off(ps)
    assert report.finished == 1
    (one,) = receiver.seen
    assert one.id == str(event)
    document = _verified(one, SECRET)
    assert document == one.document
    assert document["id"] == str(event)
    assert document["type"] == "orders.paid"
    assert document["source"] == "penstock"
    assert document["data"] == {"amount": 990}
    assert document["ordering_key"] == "customer-7"
    assert one.headers["penstock-attempt"] == "1"
    assert one.headers["penstock-fence"] == "1"
    assert one.headers["x-shop"] == "blue"
    assert await states(conn, "acme") == {"DELIVERED": 1}


async def test_every_live_secret_signs_and_rotation_counts_without_a_restart(
    ps: Penstock, conn: Connection, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLD_SECRET", SECRET)
    monkeypatch.setenv("NEW_SECRET", OTHER_SECRET)
    await put(conn, "acme", config={"url": receiver.url()}, secrets=["env:OLD_SECRET"])
    async with working(ps):
        await publish(conn, n=1)
        await until_true(lambda: len(receiver.seen) == 1, "the first has come")
        _verified(receiver.seen[0], SECRET)
        with pytest.raises(WebhookVerificationError):
            _verified(receiver.seen[0], OTHER_SECRET)
        await conn.execute("select app.outbox_rotate_destination('acme', 'env:NEW_SECRET', 'test')")

        async def both() -> bool:
            await publish(conn, n=2)
            return " " in receiver.seen[-1].headers["webhook-signature"]

        await until(both, "both secrets sign")
        _verified(receiver.seen[-1], SECRET)
        _verified(receiver.seen[-1], OTHER_SECRET)
        await conn.execute("select app.outbox_rotate_destination('acme', null, 'test')")

        async def new_only() -> bool:
            await publish(conn, n=3)
            return " " not in receiver.seen[-1].headers["webhook-signature"]

        await until(new_only, "the old secret has ended")
        _verified(receiver.seen[-1], OTHER_SECRET)
        with pytest.raises(WebhookVerificationError):
            _verified(receiver.seen[-1], SECRET)
    refs = await conn.fetchval("select secret_refs from public.outbox_destinations")
    assert refs == ["env:NEW_SECRET"]


@pytest.mark.parametrize("form", ["cloudevents", "cloudevents-binary", "data"])
async def test_the_form_of_the_body_is_chosen_by_the_destination(
    ps: Penstock, conn: Connection, receiver: Receiver, form: str
) -> None:
    await put(conn, "acme", config={"url": receiver.url(), "format": form})
    event = await publish(conn, "orders.zürich", n=1)
    await work_off(ps)
    (one,) = receiver.seen
    assert one.id == str(event)
    if form == "cloudevents":
        assert one.headers["content-type"] == "application/cloudevents+json"
        assert one.document["specversion"] == "1.0"
        assert one.document["type"] == "orders.zürich"
        assert one.document["data"] == {"n": 1}
    else:
        assert one.document == {"n": 1}
    if form == "cloudevents-binary":
        assert one.headers["ce-id"] == str(event)
        assert one.headers["ce-type"] == "orders.z%C3%BCrich"


@pytest.mark.parametrize("status", [400, 404, 422])
async def test_a_refusal_is_final_and_kept_as_a_dead_letter(
    ps: Penstock, conn: Connection, receiver: Receiver, status: int
) -> None:
    receiver.answering = lambda _one: status
    await put(conn, "acme", config={"url": receiver.url()})
    await publish(conn, n=1)
    await work_off(ps)
    assert len(receiver.seen) == 1
    row = await conn.fetchrow("select error_code, attempts from public.outbox where route = 'acme'")
    assert row is not None
    assert (row["error_code"], row["attempts"]) == (f"HTTP_{status}", 1)
    assert await states(conn, "acme") == {"DEAD": 1}


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503])
async def test_a_passing_failure_is_tried_again_under_the_same_id(
    ps: Penstock, conn: Connection, receiver: Receiver, status: int
) -> None:
    receiver.answering = lambda _one: status if len(receiver.seen) < 3 else 204
    await conn.execute(
        "update penstock.queue_config set backoff_base_s = 0.05, backoff_cap_s = 0.1"
    )
    await put(conn, "acme", config={"url": receiver.url()})
    event = await publish(conn, n=1)
    async with working(ps):
        await until_true(lambda: len(receiver.seen) == 3, "the third attempt came")
        await until(lambda: _is(conn, "acme", {"DELIVERED": 1}), "it is delivered")
    assert [one.id for one in receiver.seen] == [str(event)] * 3
    assert [one.headers["penstock-attempt"] for one in receiver.seen] == ["1", "2", "3"]
    fences = [int(one.headers["penstock-fence"]) for one in receiver.seen]
    assert fences == sorted(set(fences)), "a fence grows with every lease"


async def _is(conn: Connection, route: str, wanted: Mapping[str, int]) -> bool:
    return await states(conn, route) == wanted


async def test_retry_after_is_obeyed(ps: Penstock, conn: Connection, receiver: Receiver) -> None:
    def answer(_one: Received) -> web.Response:
        return web.Response(status=503, headers={"retry-after": "120"})

    receiver.answering = answer
    await put(conn, "acme", config={"url": receiver.url()})
    await publish(conn, n=1)
    await work_off(ps)
    wait_s = await conn.fetchval(
        "select extract(epoch from next_attempt_at - penstock.clock())::float8"
        " from public.outbox where route = 'acme'"
    )
    assert 110 < wait_s <= 121


async def test_no_answer_is_tried_again_under_the_same_id(
    ps: Penstock, conn: Connection, receiver: Receiver
) -> None:
    """A receiver that took it and said so too late sees a repetition, and can know it."""
    await put(conn, "acme", config={"url": receiver.url(), "timeout_s": 0.2})
    await conn.execute(
        "update penstock.queue_config set backoff_base_s = 0.05, backoff_cap_s = 0.1"
    )
    too_late = asyncio.Event()

    async def answer(_one: Received) -> int:
        if len(receiver.seen) == 1:
            await too_late.wait()
        return 204

    receiver.answering = answer
    event = await publish(conn, n=1)
    async with working(ps):
        await until(lambda: _is(conn, "acme", {"DELIVERED": 1}), "the second call is answered")
        too_late.set()
    assert [one.id for one in receiver.seen] == [str(event)] * 2
    assert [one.document["id"] for one in receiver.seen] == [str(event)] * 2
    codes = await conn.fetch("select outcome, error_code from public.outbox_attempts")
    assert [tuple(row) for row in codes] == [("RETRY", "TIMEOUT")]


async def test_a_receiver_that_is_gone_is_disabled_and_its_deliveries_wait(
    ps: Penstock, conn: Connection, receiver: Receiver
) -> None:
    receiver.answering = lambda _one: 410
    await put(conn, "acme", config={"url": receiver.url()}, concurrency=1)
    await publish(conn, n=1)
    async with working(ps) as observed:
        await until(lambda: _enabled(conn, False), "it is disabled")
        await publish(conn, n=2)
        await until(lambda: _waits(conn, 2), "both wait")
        assert any(getattr(one, "state", "") == "gone" for one in observed)
        before = len(receiver.seen)
        receiver.answering = lambda _one: 204
        await conn.execute(
            "update public.outbox set next_attempt_at = penstock.clock()"
            " where next_attempt_at is not null"
        )
        put_back = "select app.outbox_put_destination('acme', null, '{\"enabled\": true}', 'test')"
        await conn.execute(put_back)
        await until(lambda: _is(conn, "acme", {"DELIVERED": 2}), "enabled, both are delivered")
    assert before == 1, "nothing more was sent to it"
    reasons = await conn.fetch("select reason from audit.audit_logs where operation = 'disable'")
    assert [row["reason"] for row in reasons] == ["the receiver says that it is gone: HTTP_410"]


async def _enabled(conn: Connection, wanted: bool) -> bool:
    found: bool = await conn.fetchval("select enabled from public.outbox_destinations")
    return found is wanted


async def _waits(conn: Connection, count: int) -> bool:
    found: int = await conn.fetchval(
        "select count(*) from public.outbox where processing_token is null and dead_at is null"
    )
    return found == count


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest",
        "https://10.0.0.1/",
        "ftp://x/",
    ],
)
async def test_an_address_that_may_not_be_called_is_never_called(
    ps: Penstock, conn: Connection, url: str
) -> None:
    await put(conn, "acme", config={"url": url})
    await publish(conn, n=1)
    async with working(ps) as observed:
        await until_true(
            lambda: any(one.name == "destination_unusable" for one in observed), "it is reported"
        )
        await until(
            lambda: conn.fetchval("select fault ~ 'BadSetting' from public.outbox_destinations"),
            "operators can see it",
        )
    assert await conn.fetchval("select attempts from public.outbox where event_id is null") == 0


async def test_a_name_that_leads_to_a_private_address_is_refused_when_connecting(
    conn: Connection, database_url: str
) -> None:
    ps = Penstock(database_url)
    await put(conn, "acme", config={"url": "https://localhost/hook"})
    await publish(conn, n=1)
    await work_off(ps)
    row = await conn.fetchrow("select error_code from public.outbox where route = 'acme'")
    assert row is not None
    assert row["error_code"] == "ADDRESS_REFUSED"


async def test_a_redirect_is_not_followed(
    ps: Penstock, conn: Connection, receiver: Receiver
) -> None:
    def answer(_one: Received) -> web.Response:
        return web.Response(status=302, headers={"location": receiver.url("/elsewhere")})

    receiver.answering = answer
    await put(conn, "acme", config={"url": receiver.url()})
    await publish(conn, n=1)
    await work_off(ps)
    assert [one.path for one in receiver.seen] == ["/hook"]
    assert await states(conn, "acme") == {"WAITING": 1}


@pytest.mark.parametrize("state", ["a=1\r\nx-admin: yes", "a\0b", "a=1\n"])
async def test_a_trace_that_is_no_header_is_left_out(receiver: Receiver, state: str) -> None:
    settings = with_values(Settings(), http_allow_private=("127.0.0.1/32",))
    sink = make(destination("http", {"url": receiver.url()}), settings)
    trace = {"tracestate": state, "traceparent": "00-ab"}
    plain = delivery({"n": 1})
    sent = replace(plain, envelope=replace(plain.envelope, trace=trace))
    assert await sink.deliver([sent]) == [DONE], "it says nothing of the receiver"
    await sink.close()
    (one,) = receiver.seen
    assert one.headers["traceparent"] == "00-ab"
    assert {"tracestate", "x-admin"}.isdisjoint(one.headers)
