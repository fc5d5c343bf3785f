"""Publishing: exactly if the transaction commits, whatever the driver; refused otherwise."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import asyncpg
import msgspec
import psycopg
import pytest
from opentelemetry.sdk.trace import TracerProvider
from tests.support.drivers import ASYNC, SYNC, Opened, OpenedSync

from penstock import KeyReused, NotInTransaction, PayloadRefused, Penstock
from penstock.kernel.errors import NotFound, SchemaMissing, WrongUsage
from penstock.outbox import store

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
ROW = (
    "select id, topic, payload::text, headers::text, tenant_id, next_attempt_at from public.outbox"
)


@dataclass
class Paid:
    order_id: int
    amount: Decimal


async def commit(conn: Any) -> None:
    """Commit what a driver's own block would commit; asyncpg's blocks do it at their end."""
    if hasattr(conn, "commit"):
        await conn.commit()


@pytest.mark.parametrize("opened", ASYNC.values(), ids=ASYNC.keys())
async def test_an_event_is_there_exactly_if_the_transaction_commits(
    database_url: str, conn: Connection, opened: Callable[[str, bool], Opened]
) -> None:
    topic = Penstock().outbox.topic("orders.paid", Paid)
    async with opened(database_url, False) as user:
        event = await topic.publish(user, Paid(42, Decimal("9.90")))
        assert await conn.fetch(ROW) == []
        await commit(user)
    (row,) = await conn.fetch(ROW)
    assert (row["id"], row["topic"]) == (event, "orders.paid")
    assert msgspec.json.decode(row["payload"]) == {"order_id": 42, "amount": "9.90"}

    async def publish_and_fail() -> None:
        async with opened(database_url, False) as user:
            await topic.publish(user, Paid(43, Decimal(1)))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await publish_and_fail()
    assert len(await conn.fetch(ROW)) == 1


@pytest.mark.parametrize("opened", SYNC.values(), ids=SYNC.keys())
def test_blocking_drivers_publish_too(
    database_url: str, opened: Callable[[str, bool], OpenedSync]
) -> None:
    topic = Penstock().outbox.topic("orders.paid", Paid)
    with opened(database_url, False) as user:
        event = topic.publish_sync(
            user, Paid(42, Decimal("9.90")), tenant=UUID(int=3), headers={"a": "b"}
        )
        if hasattr(user, "commit") and not hasattr(user, "in_atomic_block"):
            user.commit()
    with SYNC["psycopg"](database_url, False) as other:
        found = other.execute("select array[id::text, headers::text] from public.outbox").fetchall()
    assert found == [[str(event), '{"a": "b"}']]


@pytest.mark.parametrize("opened", ASYNC.values(), ids=ASYNC.keys())
async def test_publishing_outside_a_transaction_is_refused(
    database_url: str, conn: Connection, opened: Callable[[str, bool], Opened]
) -> None:
    topic = Penstock().outbox.topic("orders.paid", Paid)
    async with opened(database_url, True) as user:
        with pytest.raises(NotInTransaction):
            await topic.publish(user, Paid(1, Decimal(1)))
        with pytest.raises(NotInTransaction):
            await topic.publish_many(user, [Paid(1, Decimal(1))])
        assert await conn.fetch(ROW) == []
        await topic.publish(user, Paid(1, Decimal(1)), autocommit_ok=True)
        assert len(await conn.fetch(ROW)) == 1


async def test_options_arrive_in_the_row(conn: Connection) -> None:
    topic = Penstock().outbox.topic("orders.paid", Paid, version=3)
    later = datetime.now(UTC) + timedelta(hours=1)
    async with conn.transaction():
        await topic.publish(
            conn, Paid(1, Decimal(1)), deliver_at=later, tenant=UUID(int=9), headers={"x": "y"}
        )
    (row,) = await conn.fetch(ROW)
    assert row["next_attempt_at"] == later
    assert row["tenant_id"] == UUID(int=9)
    assert msgspec.json.decode(row["headers"]) == {"x": "y", "penstock-version": "3"}


async def test_a_time_without_zone_is_refused(conn: Connection) -> None:
    topic = Penstock().outbox.topic("orders.paid", Paid)
    naive = datetime.now(UTC).replace(tzinfo=None)
    async with conn.transaction():
        with pytest.raises(WrongUsage, match="time zone"):
            await topic.publish(conn, Paid(1, Decimal(1)), deliver_at=naive)


async def test_a_misspelt_option_is_refused_and_the_right_one_named(conn: Connection) -> None:
    """Where types are not checked it would be dropped, and the order with it."""
    topic = Penstock().outbox.topic("orders.paid", Paid)
    options: Any = {"odering_key": "a"}
    async with conn.transaction():
        with pytest.raises(WrongUsage) as caught:
            await topic.publish(conn, Paid(1, Decimal(1)), **options)
    assert "ordering_key" in caught.value.todo


async def test_without_our_schema_publishing_says_what_to_run(empty_url: str) -> None:
    topic = Penstock().outbox.topic("orders.paid", Paid)
    conn = await asyncpg.connect(empty_url)
    try:
        async with conn.transaction():
            with pytest.raises(SchemaMissing):
                await topic.publish(conn, Paid(1, Decimal(1)))
    finally:
        await conn.close()


async def test_many_are_published_in_order_and_with_their_options(conn: Connection) -> None:
    ps = Penstock()
    plain, tenants = ps.outbox.topic("plain", dict), ps.outbox.topic("tenants", dict)
    async with conn.transaction():
        assert await plain.publish_many(conn, ({"n": n} for n in range(2500))) == 2500
        assert await tenants.publish_many(conn, [{"n": 1}, {"n": 2}], tenant=UUID(int=4)) == 2
        assert await plain.publish_many(conn, []) == 0
    numbers = await conn.fetch(
        "select (payload ->> 'n')::int as n from public.outbox where topic = 'plain' order by seq"
    )
    assert [row["n"] for row in numbers] == list(range(2500))
    found = await conn.fetch("select tenant_id from public.outbox where topic = 'tenants'")
    assert [row["tenant_id"] for row in found] == [UUID(int=4)] * 2


@pytest.mark.parametrize("opened", ASYNC.values(), ids=ASYNC.keys())
async def test_every_driver_publishes_many_with_all_options(
    database_url: str, conn: Connection, opened: Callable[[str, bool], Opened]
) -> None:
    topic = Penstock().outbox.topic("orders.paid", Paid, version=2)
    later = datetime.now(UTC) + timedelta(hours=1)
    async with opened(database_url, False) as user:
        paid = [Paid(n, Decimal("9.90")) for n in range(1100)]
        assert (
            await topic.publish_many(user, paid, tenant=UUID(int=9), headers={"x": "%s $1"}) == 1100
        )
        assert await topic.publish_many(user, paid[:2], ordering_key="k", deliver_at=later) == 2
        assert await conn.fetch(ROW) == []
        await commit(user)
    rows = await conn.fetch(f"{ROW} order by seq")
    assert [msgspec.json.decode(row["payload"])["order_id"] for row in rows] == [*range(1100), 0, 1]
    assert {row["tenant_id"] for row in rows[:1100]} == {UUID(int=9)}
    assert msgspec.json.decode(rows[0]["headers"]) == {"x": "%s $1", "penstock-version": "2"}
    keyed = await conn.fetch(
        "select ordering_key, next_attempt_at, turn is not null as behind, deliver_at"
        " from public.outbox where ordering_key is not null order by seq"
    )
    assert [tuple(row) for row in keyed] == [("k", later, False, None), ("k", None, True, later)]


@pytest.mark.parametrize("opened", ASYNC.values(), ids=ASYNC.keys())
async def test_a_producer_that_fails_leaves_the_connection_to_its_owner(
    database_url: str, conn: Connection, opened: Callable[[str, bool], Opened]
) -> None:
    topic = Penstock().outbox.topic("orders.paid", Paid)

    def paid() -> Iterator[Paid]:
        yield from (Paid(n, Decimal(1)) for n in range(1_200))
        raise ZeroDivisionError

    async with opened(database_url, False) as user:
        with pytest.raises(ZeroDivisionError):
            await topic.publish_many(user, paid())
        await topic.publish(user, Paid(1, Decimal(1)))
        await commit(user)
    assert len(await conn.fetch(ROW)) == 1_001, "what was sent before is in the same transaction"


async def test_many_large_payloads_take_several_statements(
    conn: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Penstock().outbox.topic("large", dict)
    statements: list[int] = []
    publish_many = store.publish_many

    async def counted(user: Any, args: Any) -> int:
        statements.append(len(args[1]))
        return await publish_many(user, args)

    monkeypatch.setattr(store, "publish_many", counted)
    async with conn.transaction():
        assert await topic.publish_many(conn, ({"a": "x" * 900_000} for _ in range(12))) == 12
    assert len(statements) == 3
    assert max(statements) < 6 * 1024 * 1024


@pytest.mark.parametrize(
    "data",
    [{"a": "\x00"}, {"a": "\ud800"}, {"a": "x" * 1_100_000}, {"a": {1, object()}}],
    ids=["nul", "surrogate", "too large", "no json"],
)
async def test_a_payload_that_cannot_be_stored_is_refused_before_the_database_sees_it(
    conn: Connection, data: Any
) -> None:
    topic = Penstock().outbox.topic("any", dict)
    async with conn.transaction():
        with pytest.raises(PayloadRefused):
            await topic.publish(conn, data)
        await topic.publish(conn, {"the transaction": "still works"})


async def test_the_wrong_model_is_refused_where_types_are_not_checked(conn: Connection) -> None:
    topic = Penstock().outbox.topic("orders.paid", Paid)
    wrong: Any = {"order_id": 1}
    async with conn.transaction():
        with pytest.raises(PayloadRefused, match="carries Paid, not dict"):
            await topic.publish(conn, wrong)


async def test_json_can_be_published_without_a_model(conn: Connection) -> None:
    async with conn.transaction():
        await Penstock().outbox.publish(conn, "free", {"a": [1, None, "é"]})
    (row,) = await conn.fetch(ROW)
    assert msgspec.json.decode(row["payload"]) == {"a": [1, None, "é"]}


async def test_the_trace_of_the_publisher_goes_along(conn: Connection) -> None:
    topic = Penstock().outbox.topic("orders.paid", Paid)
    tracer = TracerProvider().get_tracer("test")
    async with conn.transaction():
        with tracer.start_as_current_span("checkout") as span:
            await topic.publish(conn, Paid(1, Decimal(1)))
    (row,) = await conn.fetch(ROW)
    trace = format(span.get_span_context().trace_id, "032x")
    assert trace in msgspec.json.decode(row["headers"])["traceparent"]


async def test_an_event_can_be_withdrawn_until_it_is_in_flight(
    conn: Connection, database_url: str
) -> None:
    ps = Penstock(database_url)
    topic = ps.outbox.topic("orders.paid", Paid)
    async with conn.transaction():
        event = await topic.publish(conn, Paid(1, Decimal(1)))
        flying = await topic.publish(conn, Paid(2, Decimal(1)))
    assert await ps.outbox.cancel(conn, event, reason="a mistake")
    assert not await ps.outbox.cancel(conn, event, reason="again")
    await conn.execute("select from app.outbox_claim(10, $1)", uuid4())
    assert not await ps.outbox.cancel(conn, flying, reason="too late")
    async with ps:
        story = await ps.outbox.story(event)
        assert (story.state, story.topic, story.attempts) == ("CANCELLED", "orders.paid", ())
        with pytest.raises(NotFound):
            await ps.outbox.story(uuid4())


def test_a_topic_is_declared_once() -> None:
    ps = Penstock()
    ps.outbox.topic("orders.paid", Paid)
    with pytest.raises(WrongUsage, match="twice"):
        ps.outbox.topic("orders.paid", Paid)


@pytest.mark.parametrize("name", ["", "Orders Paid!", " orders", "-x", "a*", "a" * 201, "a\n"])
def test_what_is_no_name_for_a_topic_is_refused(name: str) -> None:
    with pytest.raises(WrongUsage, match="no name for a topic"):
        Penstock().outbox.topic(name, Paid)


@pytest.mark.parametrize("opened", SYNC.values(), ids=SYNC.keys())
def test_blocking_drivers_publish_many_too(
    database_url: str, opened: Callable[[str, bool], OpenedSync]
) -> None:
    topic = Penstock().outbox.topic("orders.paid", Paid)
    paid = (Paid(number, Decimal(1)) for number in range(1_001))
    with opened(database_url, False) as user:
        assert topic.publish_many_sync(user, paid, ordering_key="k") == 1_001
        if hasattr(user, "commit") and not hasattr(user, "in_atomic_block"):
            user.commit()
    with psycopg.connect(database_url) as reader:
        found = reader.execute(
            "select (payload ->> 'order_id')::integer from public.outbox order by seq"
        ).fetchall()
    assert [number for (number,) in found] == list(range(1_001))


@pytest.mark.parametrize("opened", SYNC.values(), ids=SYNC.keys())
def test_blocking_drivers_are_refused_outside_a_transaction_too(
    database_url: str, opened: Callable[[str, bool], OpenedSync]
) -> None:
    topic = Penstock().outbox.topic("orders.paid", Paid)
    with opened(database_url, True) as user:
        with pytest.raises(NotInTransaction):
            topic.publish_many_sync(user, [Paid(1, Decimal(1))])
        with pytest.raises(NotInTransaction):
            topic.publish_sync(user, Paid(1, Decimal(1)))
        topic.publish_sync(user, Paid(1, Decimal(1)), autocommit_ok=True)


async def test_a_dedupe_key_names_one_fact(conn: Connection) -> None:
    topic = Penstock().outbox.topic("orders.paid", Paid)
    paid = Paid(42, Decimal("9.90"))
    async with conn.transaction():
        first = await topic.publish(conn, paid, dedupe_key="paid-42", headers={"trace": "1"})
    async with conn.transaction():
        assert await topic.publish(conn, paid, dedupe_key="paid-42") == first
        with pytest.raises(WrongUsage, match="many events"):
            await topic.publish_many(conn, [paid], dedupe_key="paid-42")
    with pytest.raises(KeyReused):
        async with conn.transaction():
            await topic.publish(conn, Paid(42, Decimal(1)), dedupe_key="paid-42")
    assert len(await conn.fetch(ROW)) == 1
