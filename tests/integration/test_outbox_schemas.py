"""Models of topics: kept by version, and what may change within one."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import asyncpg
import msgspec
import psycopg
import pydantic
import pytest
from tests.support.jobs import Connection, work

from penstock import Event, Penstock, SchemaChanged, Topic
from penstock.kernel.codec import encode
from penstock.outbox.schemas import differences, schema_of


@dataclass
class Line:
    sku: str


@dataclass
class Order:
    number: int
    lines: list[Line]
    title: str = ""


@dataclass
class OrderWithNote:
    number: int
    lines: list[Line]
    title: str = ""
    note: str | None = None


@dataclass
class OrderNeedsNote:
    number: int
    lines: list[Line]
    note: str
    title: str = ""


@dataclass
class OrderByText:
    number: str
    lines: list[Line]
    title: str = ""


@dataclass
class OrderWithoutNumber:
    lines: list[Line]


@dataclass
class OrderWithNumberedNote:
    number: int
    lines: list[Line]
    note: int | None = None


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    number: int


class StrictWithNote(msgspec.Struct, forbid_unknown_fields=True):
    number: int
    note: str | None = None


class Lenient(msgspec.Struct):
    number: int
    note: str | None = None


class Typed(TypedDict):
    number: int
    note: NotRequired[str]


class Pydantic(pydantic.BaseModel):
    """A model of another library."""

    number: int


def _app(url: str, model: Any, version: int = 1) -> Penstock:
    ps = Penstock(url)

    async def handler(event: Event[Any]) -> None:
        del event

    ps.outbox.topic("orders", model, version=version).on()(handler)
    return ps


async def _versions(conn: Connection) -> list[int]:
    rows = await conn.fetch("select version from public.outbox_schemas order by version")
    return [row["version"] for row in rows]


async def test_optional_fields_may_come_and_go(database_url: str, conn: Connection) -> None:
    for model in (Order, OrderWithNote, Order):
        await work(_app(database_url, model))
    assert await _versions(conn) == [1]


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (OrderNeedsNote, r"\$\.note is now required"),
        (OrderByText, r"\$\.number has another type"),
        (OrderWithoutNumber, r"\$\.number is no longer always there"),
    ],
)
async def test_what_cannot_be_read_needs_a_new_version(
    database_url: str, conn: Connection, model: Any, said: str
) -> None:
    await work(_app(database_url, Order))
    with pytest.raises(SchemaChanged, match=said):
        await work(_app(database_url, model))
    await work(_app(database_url, model, version=2))
    assert await _versions(conn) == [1, 2]


async def test_an_optional_field_that_went_does_not_come_back_as_another(
    database_url: str, conn: Connection
) -> None:
    for model in (OrderWithNote, Order):
        await work(_app(database_url, model))
    with pytest.raises(SchemaChanged, match=r"\$\.note has another type"):
        await work(_app(database_url, OrderWithNumberedNote))
    await work(_app(database_url, OrderWithNote))
    assert await _versions(conn) == [1]


@pytest.mark.parametrize(
    ("first", "then"), [(Strict, StrictWithNote), (StrictWithNote, Strict), (Lenient, Strict)]
)
async def test_what_refuses_unknown_fields_cannot_change_them(
    database_url: str, conn: Connection, first: Any, then: Any
) -> None:
    await work(_app(database_url, first))
    with pytest.raises(SchemaChanged, match=r"\$\.note is not accepted by both"):
        await work(_app(database_url, then))
    assert await _versions(conn) == [1]


def test_schemas_of_all_kinds_of_models() -> None:
    for model in (Lenient, Typed):
        schema = schema_of(model)
        assert schema is not None
        assert (schema["required"], sorted(schema["properties"])) == (
            ["number"],
            ["note", "number"],
        )

    assert schema_of(dict) is not None
    assert schema_of(dict[str, object]) is None, "it says nothing that could be compared"
    found = schema_of(Pydantic)
    assert found is not None
    assert found["required"] == ["number"]
    assert list(differences(found, found)) == []
    order = schema_of(Order)
    assert order is not None
    assert order["properties"]["lines"]["items"]["required"] == ["sku"]
    assert "title" in order["properties"]


ORDER = Order(1, [])
TEXT = OrderByText("one", [])


def _producer(url: str, model: Any) -> Topic[Any]:
    """A process that publishes and handles nothing."""
    return Penstock(url).outbox.topic("orders", model)


async def _published(conn: Connection) -> int:
    count: int = await conn.fetchval("select count(*) from public.outbox")
    return count


async def test_who_only_publishes_keeps_its_schemas_when_it_opens(
    database_url: str, conn: Connection
) -> None:
    ps = Penstock(database_url)
    topic = ps.outbox.topic("orders", Order)
    async with ps, ps.transaction() as tx:
        assert await _versions(conn) == [1], "before and beside the transaction"
        await topic.publish(tx, ORDER)
    other = Penstock(database_url)
    other.outbox.topic("orders", OrderByText)
    with pytest.raises(SchemaChanged, match=r"\$\.number has another type"):
        async with other:
            pass
    assert not other.is_open


async def test_without_opening_the_schema_comes_with_the_first_event(
    database_url: str, conn: Connection
) -> None:
    topic = _producer(database_url, Order)
    undone = conn.transaction()
    await undone.start()
    await topic.publish(conn, ORDER)
    await undone.rollback()
    assert await _versions(conn) == []
    for _ in range(2):
        async with conn.transaction():
            await topic.publish(conn, ORDER)
    assert await _versions(conn) == [1]
    changed = _producer(database_url, OrderByText)
    async with conn.transaction():
        with pytest.raises(SchemaChanged, match=r"\$\.number has another type"):
            await changed.publish(conn, TEXT)
        with pytest.raises(SchemaChanged):
            await changed.publish_many(conn, [TEXT])
        await topic.publish_many(conn, [ORDER])
    assert await _published(conn) == 3


async def test_so_it_does_on_a_blocking_connection(database_url: str, conn: Connection) -> None:
    topic, changed = _producer(database_url, Order), _producer(database_url, OrderByText)
    with psycopg.connect(database_url) as user:
        topic.publish_sync(user, ORDER)
        user.commit()
        topic.publish_many_sync(user, [ORDER])
        with pytest.raises(SchemaChanged):
            changed.publish_sync(user, TEXT)
        with pytest.raises(SchemaChanged):
            changed.publish_many_sync(user, [TEXT])
    assert await _published(conn) == 2
    assert await _versions(conn) == [1]


async def test_producers_do_not_wait_for_each_others_first_event(
    database_url: str, conn: Connection
) -> None:
    first, second = _producer(database_url, Order), _producer(database_url, OrderByText)
    other = await asyncpg.connect(database_url, command_timeout=10)
    try:
        async with conn.transaction():
            await first.publish(conn, ORDER)
            async with other.transaction():
                await second.publish(other, TEXT)
        async with other.transaction():
            with pytest.raises(SchemaChanged):
                await second.publish(other, TEXT)
        async with other.transaction(isolation="repeatable_read"):
            with pytest.raises(SchemaChanged):
                await second.publish(other, TEXT)
    finally:
        await other.close()


async def test_an_older_snapshot_keeps_a_schema_and_does_not_fail_on_one(
    database_url: str, conn: Connection
) -> None:
    topics = [_producer(database_url, Order) for _ in range(2)]
    async with conn.transaction(isolation="repeatable_read"):
        await topics[0].publish(conn, ORDER)
    assert await _versions(conn) == [1]
    await conn.execute("delete from public.outbox_schemas")
    other = await asyncpg.connect(database_url, command_timeout=10)
    try:
        async with other.transaction(isolation="repeatable_read"):
            assert await _versions(other) == []
            await topics[0].publish(conn, ORDER, autocommit_ok=True)
            assert await _versions(conn) == [1]
            await topics[1].publish(other, ORDER)
    finally:
        await other.close()
    assert await _published(conn) == 3


async def test_opening_and_starting_wait_for_no_producer(
    database_url: str, conn: Connection
) -> None:
    first, opened = _producer(database_url, Order), Penstock(database_url)
    late = opened.outbox.topic("orders", OrderByText)
    held = conn.transaction()
    await held.start()
    await first.publish(conn, ORDER)
    await work(_app(database_url, OrderByText))
    async with opened:
        await held.commit()
        with pytest.raises(SchemaChanged):
            async with opened.transaction() as tx:
                await late.publish(tx, TEXT)


@pytest.mark.parametrize("nested", [False, True])
async def test_what_a_transaction_keeps_is_not_known_before_its_end(
    database_url: str, conn: Connection, nested: bool
) -> None:
    topic = _producer(database_url, Order)
    undone = conn.transaction()
    await undone.start()
    for _ in range(2):
        async with conn.transaction() if nested else nullcontext():
            await topic.publish(conn, ORDER)
    await undone.rollback()
    async with conn.transaction():
        await topic.publish(conn, ORDER)
    assert await _versions(conn) == [1]


async def test_a_producers_role_adds_to_what_is_kept_and_takes_nothing_away(
    database_url: str, conn: Connection
) -> None:
    as_producer = f"{database_url}&role=penstock_outbox_ingest"
    for model in (Order, OrderWithNote, Order):
        ps = Penstock(as_producer)
        ps.outbox.topic("orders", model)
        async with ps:
            pass
    kept = "select schema::text from public.outbox_schemas"
    before = await conn.fetchval(kept)
    assert '"note"' in before
    await conn.execute("set role penstock_outbox_ingest")
    await conn.execute("select app.outbox_put_schema('orders', 1, '{}', true)")
    await conn.execute("reset role")
    assert await conn.fetchval(kept) == before


NUMBER: dict[str, Any] = {
    "type": "object",
    "properties": {"number": {"type": "integer"}, "line": {"type": "object", "properties": {}}},
    "required": ["number", "line"],
}
MORE = {**NUMBER["properties"], "more": {"type": "string"}}
CLOSED = {**NUMBER, "additionalProperties": False}


def _with_line(**line: Any) -> dict[str, Any]:
    return {**NUMBER, "properties": {**NUMBER["properties"], "line": {"type": "object", **line}}}


PROPOSALS: list[tuple[dict[str, Any], dict[str, Any], bool]] = [
    (NUMBER, {**NUMBER, "properties": MORE}, True),
    (NUMBER, {**NUMBER, "properties": MORE, "required": ["line", "number"]}, True),
    (NUMBER, {**NUMBER, "properties": MORE, "required": ["number", "line", "more"]}, False),
    (NUMBER, {**NUMBER, "required": ["number", "line", "zzz"]}, False),
    (NUMBER, {**NUMBER, "required": ["number"]}, False),
    (NUMBER, CLOSED, False),
    (NUMBER, {**NUMBER, "properties": {"number": {"type": "integer"}}}, False),
    (CLOSED, {**CLOSED, "properties": MORE}, False),
    (NUMBER, _with_line(properties={"sku": {"type": "string"}}), True),
    (NUMBER, _with_line(properties={}, required=["sku"]), False),
    (_with_line(), _with_line(properties={"sku": {"type": "string"}}), False),
]


async def test_a_producers_role_adds_optional_fields_only(conn: Connection) -> None:
    put = "select app.outbox_put_schema('orders', $1, $2::text::jsonb, $3)::text"
    taken = []
    await conn.execute("set role penstock_outbox_ingest")
    for version, (kept, proposed, _) in enumerate(PROPOSALS, 1):
        await conn.fetchval(put, version, encode(kept), False)
        found = msgspec.json.decode(await conn.fetchval(put, version, encode(proposed), True))
        assert found in (kept, proposed)
        taken.append(found == proposed)
    await conn.execute("reset role")
    assert taken == [may for _, _, may in PROPOSALS]


async def test_who_may_not_publish_opens_all_the_same(database_url: str, conn: Connection) -> None:
    ps = Penstock(f"{database_url}&role=penstock_readonly")
    ps.outbox.topic("orders", Order)
    async with ps:
        assert ps.is_open
    assert await _versions(conn) == []
