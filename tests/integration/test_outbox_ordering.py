"""Ordering keys end to end: published with a key, handled in order by a real worker."""

import asyncio

import pytest
from tests.support.jobs import Connection, Job, states, work

from penstock import Event, Penstock, Reject, Topic, Verdict


@pytest.fixture
def ps(database_url: str) -> Penstock:
    return Penstock(database_url)


@pytest.fixture
def topic(ps: Penstock) -> Topic[Job]:
    return ps.outbox.topic("jobs", Job)


async def test_a_worker_handles_each_key_in_order_and_drains_all_of_it(
    ps: Penstock, topic: Topic[Job], conn: Connection
) -> None:
    seen: list[tuple[str | None, int]] = []
    running: set[str | None] = set()

    @topic.on(concurrency=20)
    async def handler(event: Event[Job]) -> None:
        assert event.ordering_key not in running
        running.add(event.ordering_key)
        await asyncio.sleep(0.001 if event.data.number % 3 else 0)
        running.remove(event.ordering_key)
        seen.append((event.ordering_key, event.data.number))

    async with conn.transaction():
        for number in range(20):
            for key in ("a", "b", "c"):
                await topic.publish(conn, Job(number), ordering_key=key)
        many = [Job(number) for number in range(20)]
        assert await topic.publish_many(conn, many, ordering_key="d") == 20
    assert (await work(ps)).finished == 80
    for key in ("a", "b", "c", "d"):
        assert [number for k, number in seen if k == key] == list(range(20))


async def test_a_rejected_event_holds_up_its_key_and_no_other(
    ps: Penstock, topic: Topic[Job], conn: Connection
) -> None:
    @topic.on()
    async def handler(event: Event[Job]) -> Verdict | None:
        return Reject("BROKEN") if event.data.number == 1 else None

    async with conn.transaction():
        for number in range(4):
            await topic.publish(conn, Job(number), ordering_key="bad")
        await topic.publish(conn, Job(7), ordering_key="good")
    assert (await work(ps)).finished == 2
    assert await states(conn) == {"DELIVERED": 2, "DEAD": 1, "BEHIND": 2}
