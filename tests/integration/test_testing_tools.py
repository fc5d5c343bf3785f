"""The tools that users test with, used as a user would."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import asyncpg
import pytest
from tests.support.drivers import with_session

from penstock import Attempt, Batch, Done, Event, Penstock, Reject, Retry, Topic, Tx, Verdict
from penstock.kernel.errors import WrongUsage
from penstock.testing import clock, crash_everywhere, drain, perform, published

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


@dataclass
class Order:
    number: int
    customer: str = "Ada"


@pytest.fixture
def ps(database_url: str) -> Penstock:
    return Penstock(database_url)


@pytest.fixture
def orders(ps: Penstock) -> Topic[Order]:
    return ps.outbox.topic("orders", Order)


@pytest.fixture
async def tx(conn: Connection) -> AsyncIterator[Connection]:
    """A transaction that is never committed."""
    transaction = conn.transaction()
    await transaction.start()
    yield conn
    await transaction.rollback()


async def test_perform_calls_one_handler_without_a_database() -> None:
    async def good(event: Event[Order], attempt: Attempt, greeting: str) -> None:
        assert (event.data, attempt.number, greeting) == (Order(1), 1, "hello")
        assert event.raw == b'{"number":1,"customer":"Ada"}'

    async def bad(event: Event[Order]) -> Verdict:
        return Reject("NO")

    def blocking(event: Event[Order]) -> None: ...

    async def many(events: Batch[Order]) -> None:
        assert [event.data.number for event in events] == [1, 2]

    async def raising(event: Event[Order]) -> None:
        raise ValueError("too many")

    assert await perform(good, Order(1), greeting="hello") == Done()
    assert await perform(bad, Order(1)) == Reject("NO")
    assert await perform(blocking, Order(1)) == Done()
    assert await perform(many, [Order(1), Order(2)]) == Done()
    with pytest.raises(ValueError, match="too many"):
        await perform(raising, Order(1))


async def test_drain_handles_what_is_committed(
    ps: Penstock, orders: Topic[Order], conn: Connection
) -> None:
    @orders.on()
    async def handler(event: Event[Order]) -> None: ...

    async with conn.transaction():
        await orders.publish(conn, Order(1))
    assert (await drain(ps)).finished == 1
    assert (await drain(ps)).finished == 0


async def test_drain_on_a_connection_works_on_what_is_not_committed(
    ps: Penstock, orders: Topic[Order], tx: Connection, database_url: str
) -> None:
    paid = ps.outbox.topic("paid", Order)
    await tx.execute("create table effects (number int)")
    resource_opened: list[int] = []

    @orders.on()
    async def handler(event: Event[Order], tx: Tx) -> None:
        await tx.execute("insert into effects values ($1)", event.data.number)
        await paid.publish(tx, event.data)
        if event.data.number == 2:
            raise ValueError

    @paid.on_batch(10)
    def batch(events: Batch[Order]) -> None:
        resource_opened.append(len(events))

    await orders.publish_many(tx, [Order(1), Order(2), Order(3)])
    report = await drain(ps, tx)
    assert (report.claimed, report.finished, report.retried) == (5, 4, 1)
    assert resource_opened == [2]
    found = await tx.fetch("select number from effects order by 1")
    assert [row["number"] for row in found] == [1, 3]
    other = await asyncpg.connect(database_url)
    assert await other.fetchval("select count(*) from app.outbox_all") == 0
    await other.close()


async def test_drain_on_a_session_of_sqlalchemy(
    ps: Penstock, orders: Topic[Order], database_url: str
) -> None:
    @orders.on()
    async def handler(event: Event[Order]) -> Retry | None:
        return Retry() if event.data.number == 2 else None

    for driver in ("asyncpg", "psycopg"):
        async with with_session(driver)(database_url, False) as session:
            await orders.publish_many(session, [Order(1), Order(2)])
            report = await drain(ps, session)
            assert (report.finished, report.retried) == (1, 1)
            assert len(await published(session, orders)) == 2


async def test_a_handler_with_tx_needs_asyncpg_to_be_drained_on(
    ps: Penstock, orders: Topic[Order], database_url: str
) -> None:
    @orders.on()
    async def handler(event: Event[Order], tx: Tx) -> None: ...

    async with with_session("psycopg")(database_url, False) as session:
        await orders.publish(session, Order(1))
        with pytest.raises(WrongUsage, match="asyncpg"):
            await drain(ps, session)


async def test_published_finds_events_by_their_fields(
    ps: Penstock, orders: Topic[Order], tx: Connection
) -> None:
    @orders.on()
    async def handler(event: Event[Order]) -> None: ...

    event = await orders.publish(tx, Order(1), headers={"a": "b"})
    await drain(ps, tx)
    await orders.publish(tx, Order(2, "Eve"))
    assert [found.data for found in await published(tx, orders)] == [Order(1), Order(2, "Eve")]
    (found,) = await published(tx, orders, customer="Ada")
    assert (found.id, dict(found.headers)) == (event, {"a": "b"})
    assert await published(tx, orders, number=3) == []


async def test_the_clock_can_be_moved_instead_of_waiting(
    ps: Penstock, orders: Topic[Order], tx: Connection
) -> None:
    @orders.on()
    async def handler(event: Event[Order]) -> None: ...

    await clock.install(tx)
    await orders.publish(tx, Order(1), deliver_at=datetime.now(UTC) + timedelta(days=3))
    assert (await drain(ps, tx)).finished == 0
    await clock.advance(tx, timedelta(days=4))
    assert (await drain(ps, tx)).finished == 1
    await clock.freeze(tx, datetime(2030, 1, 1, tzinfo=UTC))
    assert await tx.fetchval("select penstock.clock()") == datetime(2030, 1, 1, tzinfo=UTC)
    await clock.reset(tx)
    now = await tx.fetchval("select penstock.clock() - clock_timestamp()")
    assert abs(now) < timedelta(seconds=1)


class Receiver:
    """Takes calls; one that knows keys takes each key once."""

    def __init__(self, *, knows_keys: bool) -> None:
        self.knows_keys = knows_keys
        self.keys: list[str] = []

    async def call(self, key: str) -> None:
        await asyncio.sleep(0)
        if not (self.knows_keys and key in self.keys):
            self.keys.append(key)
        await asyncio.sleep(0)

    async def count(self) -> int:
        return len(self.keys)


@pytest.mark.parametrize("knows_keys", [True, False])
async def test_crash_everywhere_tells_whether_effects_double(knows_keys: bool) -> None:
    receiver = Receiver(knows_keys=knows_keys)

    async def handler(event: Event[Order]) -> None:
        async with event.effect("call") as effect:
            await receiver.call(effect.key)

    report = await crash_everywhere(handler, Order(1), effects=receiver.count)
    assert len(report.effects) == 3
    assert report.holds is knows_keys
    assert report.doubled == (() if knows_keys else (1,))


async def test_crash_everywhere_finds_an_effect_that_is_lost() -> None:
    done: list[int] = []
    began: list[int] = []

    async def handler(event: Event[Order]) -> None:
        if not began:
            began.append(1)
            await asyncio.sleep(0)
            done.append(1)

    async def count() -> int:
        return len(done)

    report = await crash_everywhere(handler, Order(1), effects=count)
    assert report.lost[0] == 0
    assert not report.holds


async def test_resources_are_opened_for_a_drain(
    ps: Penstock, orders: Topic[Order], tx: Connection
) -> None:
    steps: list[str] = []

    async def log() -> AsyncIterator[list[str]]:
        steps.append("open")
        yield steps
        steps.append("close")

    ps.resource(log)
    kind: Any = list[str]

    async def handler(event: Event[Order], log: Any) -> None:
        log.append("handled")

    handler.__annotations__["log"] = kind
    orders.on()(handler)
    await orders.publish(tx, Order(1))
    await drain(ps, tx)
    assert steps == ["open", "handled", "close"]


@pytest.mark.parametrize("own", [False, True])
async def test_draining_an_application_without_handlers_says_so(
    ps: Penstock, orders: Topic[Order], tx: Connection, own: bool
) -> None:
    with pytest.warns(UserWarning, match="penstock_app"):
        report = await drain(ps, tx if own else None)
    assert report.finished == 0

    @orders.on()
    async def handler(event: Event[Order]) -> None: ...

    await drain(ps, tx if own else None)  # nothing to do is no reason to warn
