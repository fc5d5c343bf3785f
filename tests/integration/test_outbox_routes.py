"""Several handlers of one topic, end to end: each gets every event, with attempts of its own."""

import asyncio
from collections import Counter
from uuid import UUID

import pytest
from tests.support.jobs import Connection, Job, publish, work
from tests.support.waiting import until, until_true

from penstock import Event, Penstock, Reject, Topic, Tx, Verdict
from penstock.testing import drain, published


@pytest.fixture
async def ps(database_url: str, conn: Connection) -> Penstock:
    await conn.execute("create table effects (number int, kind text)")
    return Penstock(database_url)


@pytest.fixture
def topic(ps: Penstock) -> Topic[Job]:
    return ps.outbox.topic("jobs", Job)


async def _states(conn: Connection) -> Counter[tuple[str | None, str]]:
    rows = await conn.fetch("select route, state from app.outbox_all")
    return Counter((row["route"], row["state"]) for row in rows)


async def test_every_handler_gets_every_event_under_the_same_id(
    ps: Penstock, topic: Topic[Job], conn: Connection
) -> None:
    seen: dict[str, list[UUID]] = {"mail": [], "ship": []}

    @topic.on()
    async def mail(event: Event[Job]) -> None:
        assert event.topic == "jobs"
        seen["mail"].append(event.id)

    @topic.on()
    async def ship(event: Event[Job], tx: Tx) -> None:
        await tx.execute("insert into effects values ($1)", event.data.number)
        seen["ship"].append(event.id)

    await publish(conn, topic, *range(30))
    report = await work(ps)
    assert report.finished == 60
    assert sorted(seen["mail"]) == sorted(seen["ship"])
    events = [event.id for event in await published(conn, topic)]
    assert sorted(seen["mail"]) == sorted(events)
    assert await _states(conn) == {
        (None, "DELIVERED"): 30,
        ("python:mail/jobs", "DELIVERED"): 30,
        ("python:ship/jobs", "DELIVERED"): 30,
    }
    assert await conn.fetchval("select count(*) from effects") == 30


async def test_one_handler_that_fails_does_not_touch_the_other(
    ps: Penstock, topic: Topic[Job], conn: Connection
) -> None:
    @topic.on(name="good")
    async def first(event: Event[Job]) -> None:
        del event

    @topic.on(name="bad")
    async def second(event: Event[Job]) -> Verdict:
        del event
        return Reject("BROKEN")

    await publish(conn, topic, 1)
    await work(ps)
    assert await _states(conn) == {
        (None, "FANNED"): 1,
        ("python:good/jobs", "DELIVERED"): 1,
        ("python:bad/jobs", "DEAD"): 1,
    }
    (event,) = await published(conn, topic)
    async with ps:
        story = await ps.outbox.story(event.id)
    assert {(d.route, d.state) for d in story.deliveries} == {
        ("python:good/jobs", "DELIVERED"),
        ("python:bad/jobs", "DEAD"),
    }


async def test_a_route_added_while_a_worker_runs_is_taken_up(
    ps: Penstock, topic: Topic[Job], conn: Connection
) -> None:
    seen: list[int] = []

    @topic.on()
    async def handler(event: Event[Job]) -> None:
        seen.append(event.data.number)

    async def fanned() -> bool:
        await publish(conn, topic, 2)
        return ("log", "READY") in await _states(conn)

    async with ps:
        working = asyncio.create_task(ps.work(deadline_s=8))
        await publish(conn, topic, 1)
        await until_true(lambda: len(seen) == 1, "the first event is handled")
        await conn.execute("select app.outbox_put_destination('log', 'stdout', '{}', 'test')")
        await conn.execute("select app.outbox_put_route('log', 'jobs', 'log', 'test')")
        await until(fanned, "an event takes the new route")
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    report = await work(ps)
    total = await conn.fetchval("select count(*) from app.outbox_all where event_id is null")
    assert len(seen) == total, report
    assert len(set(seen)) == 2


async def test_several_handlers_are_drained_on_the_tests_own_transaction(
    ps: Penstock, topic: Topic[Job], conn: Connection
) -> None:
    seen: list[str] = []

    @topic.on()
    async def one(event: Event[Job]) -> None:
        seen.append(f"one {event.data.number}")

    @topic.on()
    async def two(event: Event[Job]) -> None:
        seen.append(f"two {event.data.number}")

    transaction = conn.transaction()
    await transaction.start()
    await topic.publish(conn, Job(7))
    assert (await drain(ps, conn)).finished == 2
    assert sorted(seen) == ["one 7", "two 7"]
    await transaction.rollback()
    assert await conn.fetchval("select count(*) from public.outbox_routes") == 0
