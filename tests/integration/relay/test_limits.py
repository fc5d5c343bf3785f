"""What holds for all workers together: rates and breakers."""

from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest
from tests.support.destinations import (
    Connection,
    application,
    breaker,
    counts,
    publish,
    publish_many,
    put,
    route_is,
    working,
)
from tests.support.receiver import Receiver
from tests.support.waiting import until, until_true

from penstock import Event
from penstock.kernel.events import DestinationChanged
from penstock.outbox import destinations
from penstock.outbox.claims import Claims
from penstock.outbox.queue import OutboxQueue


async def test_a_rate_holds_with_two_workers(
    database_url: str, conn: Connection, receiver: Receiver
) -> None:
    rate = 40
    await put(conn, "acme", config={"url": receiver.url()}, rate_per_s=rate)
    await publish_many(conn, 100)
    started = monotonic()
    async with working(application(database_url)), working(application(database_url)):
        await until_true(lambda: len(receiver.seen) == 100, "all have come", within_s=10)
    # What is under way may bunch, so only this holds of arrivals: by any moment no more have come
    # than the rate had let go by then.
    saved_up = rate / 4
    for come, one in enumerate(receiver.seen, 1):
        assert come <= saved_up + (one.at - started) * rate * 1.05 + 1


async def test_a_breaker_opened_by_one_worker_is_seen_by_another(
    database_url: str, conn: Connection, receiver: Receiver
) -> None:
    receiver.answering = lambda _one: 503
    await put(conn, "acme", config={"url": receiver.url()}, breaker_after=3, concurrency=3)
    await publish_many(conn, 50)
    async with working(application(database_url)) as observed:
        await until_true(
            lambda: any(isinstance(one, DestinationChanged) for one in observed), "it opened"
        )
    assert await breaker(conn, "acme") == "open"
    sent = len(receiver.seen)
    assert sent <= 6
    burnt: int = await conn.fetchval("select sum(attempts) from public.outbox")
    assert burnt == sent, "what was claimed and not sent has cost no attempt"
    receiver.answering = lambda _one: 204
    async with working(application(database_url)) as other:
        await publish(conn, n=1)
        await until(lambda: counts(conn, _WAITING, 51), "the other worker has looked")
        assert len(receiver.seen) == sent, "while open, nothing is sent by anybody"
        await conn.execute("update public.outbox_destinations set breaker_until = penstock.clock()")
        await until(lambda: route_is(conn, "acme", {"DELIVERED": 51}), "closed again, all is sent")
        closed = [one for one in other if isinstance(one, DestinationChanged)]
        assert [one.state for one in closed] == ["closed"]
    assert await breaker(conn, "acme") == "closed"


_WAITING = "select count(*) from public.outbox where route = 'acme' and processing_token is null"


async def test_what_was_claimed_before_a_breaker_opened_is_given_back(
    database_url: str, conn: Connection, receiver: Receiver
) -> None:
    """A lane that was quick has taken many at once; they are not sent into the outage."""
    receiver.answering = lambda _one: 204 if len(receiver.seen) <= 300 else 503
    await put(conn, "acme", config={"url": receiver.url()}, breaker_after=2, concurrency=2)
    await publish_many(conn, 600)
    async with working(application(database_url)) as observed:
        await until(lambda: counts(conn, _OPEN, 1), "it opened")
        await until(lambda: counts(conn, _LEASED, 0), "all are given back")
    assert len(receiver.seen) - 300 <= 4
    burnt: int = await conn.fetchval("select sum(attempts) from public.outbox")
    assert burnt == len(receiver.seen) - 300
    assert any(one.name == "released" for one in observed), "there was something to give back"


_OPEN = "select count(*) from public.outbox_destinations where breaker = 'open'"
_LEASED = "select count(*) from public.outbox where processing_token is not null"


async def test_one_event_that_always_fails_opens_no_breaker(
    database_url: str, conn: Connection, receiver: Receiver
) -> None:
    """Not even where it is the only one for a while."""
    receiver.answering = lambda one: 500 if one.document["data"].get("poison") else 204
    await conn.execute("update penstock.queue_config set backoff_base_s = 0.1, backoff_cap_s = 0.1")
    await put(conn, "acme", config={"url": receiver.url()}, breaker_after=3)
    await publish(conn, poison=True)
    async with working(application(database_url)):
        await until_true(lambda: len(receiver.seen) >= 6, "it has failed often enough")
        assert await breaker(conn, "acme") == "closed"
        await publish(conn, n=1)
        await until_true(
            lambda: receiver.seen[-1].document["data"] == {"n": 1}, "its neighbour is not held up"
        )


async def test_a_probe_that_fails_leaves_the_others_alone(
    database_url: str, conn: Connection, receiver: Receiver
) -> None:
    receiver.answering = lambda _one: 503
    await put(conn, "acme", config={"url": receiver.url()}, breaker_after=1, breaker_pause_s=0.2)
    await publish_many(conn, 30)
    started = monotonic()
    async with working(application(database_url)):
        await until_true(lambda: len(receiver.seen) >= 10, "probes were sent", within_s=20)
    # The first burst is up to the concurrency of 8; each probe after it waits twice as long.
    assert monotonic() - started > 0.2
    attempts = await conn.fetch("select attempts from public.outbox where route = 'acme'")
    assert sum(row["attempts"] for row in attempts) == len(receiver.seen)


async def test_the_answer_to_a_probe_counts_also_of_an_event_that_failed_before(
    database_url: str, conn: Connection, receiver: Receiver
) -> None:
    receiver.answering = lambda _one: 503
    await conn.execute("update penstock.queue_config set backoff_base_s = 0.1, backoff_cap_s = 0.1")
    values: dict[str, Any] = {"breaker_after": 2, "concurrency": 2}
    await put(conn, "acme", config={"url": receiver.url()}, breaker_pause_s=0.2, **values)
    await publish_many(conn, 2)
    async with working(application(database_url)):
        await until_true(lambda: len(receiver.seen) >= 5, "probe after probe was answered")
        receiver.answering = lambda _one: 204
        await until(lambda: route_is(conn, "acme", {"DELIVERED": 2}), "and the last one closed it")


async def test_handlers_and_destinations_together_take_no_more_than_the_limit(
    database_url: str, conn: Connection, receiver: Receiver
) -> None:
    ps = application(database_url)

    @ps.outbox.topic("invoices", dict[str, int]).on()
    async def handler(event: Event[dict[str, int]]) -> None:
        del event

    await put(conn, "acme", config={"url": receiver.url()})
    async with ps:
        await publish_many(conn, 20)
        await publish_many(conn, 20, "invoices")
        started = monotonic()
        report = await ps.run_once("outbox", limit=7, deadline_s=15)
    assert report.claimed == report.finished == 7
    assert monotonic() - started < 10, "it ends with its limit, not with its deadline"


async def test_a_route_that_is_changed_during_a_claim_stops_no_worker(
    database_url: str, conn: Connection, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim then names the destination that the route leads to by its end."""
    claim_for = destinations.claim_for
    changed: list[Mapping[str, Any]] = []

    async def changing(conn: Any, *args: object) -> Sequence[Mapping[str, Any]]:
        rows = await claim_for(conn, *args)
        if not rows or changed:
            return rows
        changed.extend({**row, "destination": "new"} for row in rows)
        return changed

    monkeypatch.setattr(destinations, "claim_for", changing)
    await put(conn, "acme", config={"url": receiver.url()})
    event = await publish(conn, n=1)
    async with working(application(database_url)):
        await until_true(lambda: receiver.seen, "it is given back and sent")
        await until(lambda: route_is(conn, "acme", {"DELIVERED": 1}), "that is written")
    assert len(changed) == 1
    assert receiver.ids() == {str(event): 1}


async def test_a_function_that_fails_opens_the_breaker_as_a_receiver_does(
    database_url: str, conn: Connection
) -> None:
    await conn.execute(
        "create schema shop; create function shop.take(jsonb) returns void language plpgsql as"
        " $$ begin raise exception 'out of order'; end $$"
    )
    await conn.execute("insert into public.outbox_functions (name) values ('shop.take')")
    config = {"function": "shop.take", "batch": 1}
    await put(conn, "books", "sql", config=config, breaker_after=3, concurrency=1)
    await publish_many(conn, 20)
    async with working(application(database_url)) as observed:
        await until_true(
            lambda: any(isinstance(one, DestinationChanged) for one in observed), "it opened"
        )
    assert await breaker(conn, "books") == "open"
    burnt: int = await conn.fetchval("select sum(attempts) from public.outbox")
    assert burnt == 3, "the others wait until it is closed"


@pytest.mark.parametrize("before", [True, False])
async def test_only_a_claim_that_knew_a_breaker_as_open_finds_it_closed(
    conn: Connection, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    """Nothing may be sent of a claim that looked just before the breaker opened."""
    await put(conn, "acme")
    await publish(conn)
    claims = Claims(room={"acme": 1}, handlers=0, open={"acme"} if before else set())
    look = destinations.claim_for

    async def opening_meanwhile(*given: Any) -> Any:
        rows = await look(*given)
        claims.open.add("acme")
        return rows

    monkeypatch.setattr(destinations, "claim_for", opening_meanwhile)
    assert len(await OutboxQueue(routes=[], claims=claims).claim(conn, limit=1, owner=uuid4())) == 1
    assert claims.open == (set() if before else {"acme"})
