"""The ledger decides once whose a resource is."""

import asyncio
import json
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.support.intake import Connection
from tests.support.interleave import Stage

FINALIZE = "select finalize_transaction($1)"
MANY = "select * from finalize_many($1::jsonb[])"


def payload(
    user: str = "alice",
    *,
    resource: UUID | None = None,
    reservation: UUID | None = None,
    **extra: object,
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "resource_id": str(resource or uuid4()),
        "pool_id": "demo",
        "user_id": user,
        "state": "validated",
        **extra,
    }
    if reservation is not None:
        found["reservation_id"] = str(reservation)
    return found


async def many(conn: Connection, *payloads: object) -> list[str]:
    rows = await conn.fetch(MANY, [json.dumps(item) for item in payloads])
    assert [row["ordinal"] for row in rows] == list(range(1, len(payloads) + 1))
    return [row["outcome"] for row in rows]


async def proved(conn: Connection) -> bool:
    return await conn.fetch("select * from ledger_prove()") == []


async def test_the_table_has_the_seeds_shape(ledger: Connection) -> None:
    rows = await ledger.fetch(
        """
        select attname, format_type(atttypid, null), attnotnull from pg_attribute
        where attrelid = 'confirmed_tickets'::regclass and attnum between 1 and 4 order by attnum
        """
    )
    assert [tuple(row) for row in rows] == [
        ("resource_id", "uuid", True),
        ("pool_id", "text", True),
        ("user_id", "text", True),
        ("confirmed_at", "timestamp with time zone", True),
    ]
    key = (
        "select pg_get_constraintdef(oid) from pg_constraint where contype = 'p' and conrelid = $1"
    )
    oid = await ledger.fetchval("select 'confirmed_tickets'::regclass::oid")
    assert await ledger.fetchval(key, oid) == "PRIMARY KEY (resource_id)"
    secured = "select bool_and(relrowsecurity) from pg_class where relname = any ($1)"
    assert await ledger.fetchval(secured, ["confirmed_tickets", "reservation_outcomes"])


async def test_finalize_writes_the_ticket_once(ledger: Connection) -> None:
    """Also for a client that knows no reservations."""
    item = payload("user_42")
    for _ in range(2):
        await ledger.execute(FINALIZE, json.dumps(item))
    rows = await ledger.fetch("select * from confirmed_tickets")
    assert [(row["user_id"], str(row["resource_id"])) for row in rows] == [
        ("user_42", item["resource_id"])
    ]


@pytest.mark.parametrize("with_reservation", [True, False])
async def test_another_owner_is_told_and_not_hidden(
    ledger: Connection, with_reservation: bool
) -> None:
    resource = uuid4()
    first, second = (uuid4(), uuid4()) if with_reservation else (None, None)
    await ledger.execute(
        FINALIZE, json.dumps(payload("alice", resource=resource, reservation=first))
    )
    with pytest.raises(asyncpg.PostgresError) as caught:
        await ledger.execute(
            FINALIZE, json.dumps(payload("bob", resource=resource, reservation=second))
        )
    assert caught.value.sqlstate == "PN305"
    assert await ledger.fetchval("select user_id from confirmed_tickets") == "alice"
    assert await proved(ledger)


async def test_the_same_user_with_another_reservation_is_another_owner(ledger: Connection) -> None:
    resource = uuid4()
    one = payload(resource=resource, reservation=uuid4())
    two = payload(resource=resource, reservation=uuid4())
    assert await many(ledger, one) == ["confirmed"]
    assert await many(ledger, two) == ["conflict"]
    assert await proved(ledger)


async def test_one_reservation_cannot_have_two_resources(ledger: Connection) -> None:
    reservation = uuid4()
    assert await many(ledger, payload(reservation=reservation)) == ["confirmed"]
    assert await many(ledger, payload(reservation=reservation)) == ["conflict"]
    assert await ledger.fetchval("select count(*) from confirmed_tickets") == 1
    assert await proved(ledger)


async def test_a_cancelled_reservation_is_never_confirmed(ledger: Connection) -> None:
    item = payload(reservation=uuid4())
    cancel = "select cancel_transaction($1)"
    for _ in range(2):
        assert await ledger.fetchval(cancel, UUID(item["reservation_id"])) == "CANCELLED"
    with pytest.raises(asyncpg.PostgresError) as caught:
        await ledger.execute(FINALIZE, json.dumps(item))
    assert caught.value.sqlstate == "PN306"
    assert await ledger.fetchval("select count(*) from confirmed_tickets") == 0
    assert await proved(ledger)


async def test_a_confirmed_reservation_cannot_be_cancelled(ledger: Connection) -> None:
    item = payload(reservation=uuid4())
    await ledger.execute(FINALIZE, json.dumps(item))
    reservation = UUID(item["reservation_id"])
    assert await ledger.fetchval("select cancel_transaction($1)", reservation) == "CONFIRMED"
    rows = await ledger.fetch("select * from ledger_outcomes($1)", [reservation, uuid4()])
    assert [tuple(row) for row in rows] == [(reservation, "CONFIRMED")]


@pytest.mark.parametrize(
    "item",
    [
        {},
        {"resource_id": "x", "pool_id": "p", "user_id": "u"},
        {"resource_id": str(uuid4()), "pool_id": "p"},
        {"resource_id": str(uuid4()), "pool_id": "", "user_id": "u"},
        [],
        "text",
        None,
    ],
)
async def test_a_payload_that_lacks_a_field_is_refused(ledger: Connection, item: object) -> None:
    with pytest.raises(asyncpg.InvalidParameterValueError):
        await ledger.execute(FINALIZE, json.dumps(item))


async def test_a_batch_answers_each_item_and_stores_the_good_ones(ledger: Connection) -> None:
    owned, cancelled = uuid4(), uuid4()
    await many(ledger, payload("zoe", resource=owned, reservation=uuid4()))
    await ledger.execute("select cancel_transaction($1)", cancelled)
    good, plain = payload(reservation=uuid4()), payload("bob")
    outcomes = await many(
        ledger,
        good,
        payload(resource=owned, reservation=uuid4()),
        payload(reservation=cancelled),
        {"pool_id": "p"},
        plain,
        good,
        plain,
    )
    assert outcomes == [
        "confirmed",
        "conflict",
        "cancelled",
        "invalid",
        "confirmed",
        "already",
        "already",
    ]
    assert await many(ledger, good, plain) == ["already", "already"]
    assert await ledger.fetchval("select count(*) from confirmed_tickets") == 3
    assert await proved(ledger)


async def test_an_empty_batch_is_fine(ledger: Connection) -> None:
    assert await many(ledger) == []


async def test_a_cancel_waits_for_a_commit_under_way(ledger_url: str) -> None:
    item = payload(reservation=uuid4())
    async with Stage(ledger_url) as stage:
        one, two = await stage.sessions("one", "two")
        await one.begin()
        await one.run(FINALIZE, json.dumps(item))
        step = two.start("select cancel_transaction($1)", UUID(item["reservation_id"]))
        await stage.until_blocked(two, step)
        await one.commit()
        assert (await step.done())[0][0] == "CONFIRMED"


async def test_a_commit_waits_for_a_cancel_under_way(ledger_url: str) -> None:
    item = payload(reservation=uuid4())
    async with Stage(ledger_url) as stage:
        one, two = await stage.sessions("one", "two")
        await one.begin()
        await one.run("select cancel_transaction($1)", UUID(item["reservation_id"]))
        step = two.start("select outcome from finalize_many($1::jsonb[])", [json.dumps(item)])
        await stage.until_blocked(two, step)
        await one.commit()
        assert (await step.done())[0][0] == "cancelled"


async def test_a_conflict_that_aborts_leaves_the_way_free(ledger_url: str) -> None:
    resource = uuid4()
    first = payload("a", resource=resource, reservation=uuid4())
    second = payload("b", resource=resource, reservation=uuid4())
    async with Stage(ledger_url) as stage:
        one, two = await stage.sessions("one", "two")
        await one.begin()
        await one.run(FINALIZE, json.dumps(first))
        step = two.start("select outcome from finalize_many($1::jsonb[])", [json.dumps(second)])
        await stage.until_blocked(two, step)
        await one.rollback()
        assert (await step.done())[0][0] == "confirmed"


async def test_overlapping_batches_in_opposite_order_do_not_deadlock(
    ledger: Connection, ledger_url: str
) -> None:
    items = [json.dumps(payload(f"u{n}", reservation=uuid4())) for n in range(60)]
    conns = [await asyncpg.connect(ledger_url) for _ in range(4)]
    results = await asyncio.gather(
        *(
            conn.fetch(MANY, items[::-1] if number % 2 else items)
            for number, conn in enumerate(conns)
        )
    )
    confirmed = [row for rows in results for row in rows if row["outcome"] == "confirmed"]
    assert len(confirmed) == 60
    assert await proved(ledger)
    for conn in conns:
        await conn.close()


async def test_a_buyer_sees_own_tickets_only(ledger: Connection) -> None:
    mine, theirs = str(uuid4()), str(uuid4())
    await many(ledger, payload(mine), payload(theirs))
    await ledger.execute("create role buyer; grant select on confirmed_tickets to buyer")
    try:
        await ledger.execute("set role buyer")
        assert await ledger.fetch("select * from confirmed_tickets") == []
        claims = json.dumps({"sub": mine})
        await ledger.execute("select set_config('request.jwt.claims', $1, false)", claims)
        assert [r["user_id"] for r in await ledger.fetch("select * from confirmed_tickets")] == [
            mine
        ]
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await ledger.execute(FINALIZE, json.dumps(payload()))
    finally:
        await ledger.execute("reset role; drop owned by buyer; drop role buyer")


async def test_the_writer_writes_through_functions_only(ledger: Connection) -> None:
    await ledger.execute("set role penstock_ledger_writer")
    await ledger.execute(FINALIZE, json.dumps(payload()))
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await ledger.execute(
            "insert into confirmed_tickets (resource_id, pool_id, user_id) "
            "values (gen_random_uuid(), 'p', 'u')"
        )


async def test_prove_finds_what_is_wrong(ledger: Connection) -> None:
    ticket, cancelled, orphan = uuid4(), uuid4(), uuid4()
    insert = (
        "insert into confirmed_tickets (resource_id, pool_id, user_id, reservation_id) "
        "values ($1, 'p', 'u', $1)"
    )
    await ledger.execute(insert, ticket)
    await ledger.execute(insert, cancelled)
    await ledger.execute("select cancel_transaction($1)", cancelled)
    await ledger.execute(
        "insert into reservation_outcomes (reservation_id, outcome) values ($1, 'CONFIRMED')",
        orphan,
    )
    rows = await ledger.fetch("select * from ledger_prove()")
    assert [row["invariant"] for row in rows] == ["I7", "I7", "I7"]
    sold = await ledger.fetch(
        "select * from ledger_prove_sold($1, $2, $3)",
        [ticket, cancelled, uuid4()],
        ["u", "w", "u"],
        [ticket, cancelled, None],
    )
    assert [row["invariant"] for row in sold] == ["I2", "I2"]


async def test_tickets_are_read_in_pages(ledger: Connection) -> None:
    await many(ledger, *(payload(f"u{n}") for n in range(5)))
    seen: list[UUID] = []
    after: UUID | None = None
    while rows := await ledger.fetch("select * from ledger_tickets($1, 2)", after):
        seen += [row["resource_id"] for row in rows]
        after = seen[-1]
    assert len(set(seen)) == 5


async def test_realtime_carries_the_tickets_where_it_exists(
    ledger: Connection, ledger_url: str
) -> None:
    published = "select count(*) from pg_publication_tables where tablename = 'confirmed_tickets'"
    assert await ledger.fetchval(published) == 0
    await ledger.execute("create publication supabase_realtime")
    grants = files_of_ledger("grants.sql")
    for _ in range(2):
        await ledger.execute(grants)
    assert await ledger.fetchval(published) == 1


def files_of_ledger(name: str) -> str:
    """The last statement of a file: the publication's."""
    from importlib.resources import files

    text = files("penstock.ledger").joinpath("sql", name).read_text()
    return text[text.rindex("do $$") :]
