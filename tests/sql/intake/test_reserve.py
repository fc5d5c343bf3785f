"""Claims of buyers: one slot each, one answer each, whoever asks and however often."""

import asyncio
import json
from uuid import UUID, uuid4

import asyncpg
import pytest
from tests.support.intake import POOL, Connection, SqlIntake


async def test_a_claim_reserves_a_slot_and_queues_its_message(intake: SqlIntake) -> None:
    await intake.stock(2)
    resource_id = await intake.buy("user_42")
    slot = await intake.slot(resource_id)
    assert (slot["status"], slot["locked_by"]) == ("RESERVED", "user_42")
    assert slot["locked_at"] is not None
    row = await intake.conn.fetchrow("select * from intake_queue_read(30, 10)")
    assert row is not None
    assert json.loads(row["message"]) == {
        "pool_id": POOL,
        "resource_id": str(resource_id),
        "user_id": "user_42",
        "state": "queued",
        "reservation_id": str(slot["reservation_id"]),
    }


async def test_null_means_sold_out_and_depth_equals_claims(intake: SqlIntake) -> None:
    await intake.stock(3)
    for number in range(3):
        assert isinstance(await intake.buy(f"u{number}"), UUID)
    assert await intake.buy("late") is None
    assert await intake.depth() == 3
    assert await intake.counts() == (0, 3, 0)


async def test_a_pool_without_config_sells(intake: SqlIntake) -> None:
    await intake.conn.execute("insert into inventory_slots (pool_id) values ('bare')")
    assert await intake.buy("u", pool="bare") is not None


async def test_plain_inserts_and_copy_are_stock_too(intake: SqlIntake) -> None:
    await intake.conn.execute(
        "insert into inventory_slots (pool_id, status) "
        "select 'bare', 'AVAILABLE' from generate_series(1, 3)"
    )
    await intake.conn.copy_records_to_table(
        "inventory_slots", records=[("bare",), ("bare",)], columns=["pool_id"]
    )
    answers = await intake.reserve(*"abcdef", pool="bare")
    assert [a.outcome for a in answers] == ["reserved"] * 5 + ["sold_out"]
    assert await intake.violations() == []


async def test_the_same_request_gets_the_same_slot(intake: SqlIntake) -> None:
    await intake.stock(3)
    first = await intake.buy("u", "click")
    assert await intake.buy("u", "click") == first
    assert await intake.buy("u", "other") != first
    assert await intake.buy("v", "click") != first
    assert await intake.buy("u", "click") == first, "also when sold out"
    assert await intake.depth() == 3


async def test_a_batch_answers_each_request(intake: SqlIntake) -> None:
    await intake.stock(3)
    (before,) = await intake.reserve("b", requests=["1"])
    answers = await intake.reserve(
        "a", "b", "a", "c", "a", "d", requests=["1", "1", "1", "1", None, "1"]
    )
    assert [a.outcome for a in answers] == [
        "reserved",
        "again",
        "again",
        "reserved",
        "sold_out",
        "sold_out",
    ]
    assert answers[1].resource_id == before.resource_id
    assert answers[2] == type(answers[2])(
        "again", answers[0].resource_id, answers[0].reservation_id
    )
    assert await intake.violations() == []


async def test_who_asked_first_is_served_first_whatever_the_name(intake: SqlIntake) -> None:
    await intake.stock(2)
    answers = await intake.reserve("zoe", "adam", "bert")
    assert [a.outcome for a in answers] == ["reserved", "reserved", "sold_out"]


async def test_slots_go_out_in_order_of_stock(intake: SqlIntake) -> None:
    await intake.stock(50)
    ids = [r[0] for r in await intake.conn.fetch("select id from inventory_slots order by ord")]
    answers = await intake.reserve(*(f"u{n:02}" for n in range(50)))
    assert [a.resource_id for a in answers] == ids


async def test_the_limit_per_user_holds_in_and_across_batches(intake: SqlIntake) -> None:
    await intake.stock(10)
    await intake.configure(max_per_user=2)
    answers = await intake.reserve("u", "u", "v", "u")
    assert [a.outcome for a in answers] == ["reserved", "reserved", "reserved", "limit_reached"]
    assert [a.outcome for a in await intake.reserve("u", "v")] == ["limit_reached", "reserved"]
    with pytest.raises(asyncpg.PostgresError) as caught:
        await intake.buy("u")
    assert caught.value.sqlstate == "PN303"
    (again,) = await intake.reserve("u", requests=["x"])
    assert again.outcome == "limit_reached"


async def test_a_repeated_request_does_not_use_up_the_limit(intake: SqlIntake) -> None:
    await intake.stock(10)
    await intake.configure(max_per_user=2)
    await intake.reserve("u", requests=["r1"])
    answers = await intake.reserve("u", "u", "u", requests=["r1", "r2", "r3"])
    assert [a.outcome for a in answers] == ["again", "reserved", "limit_reached"]


async def test_a_released_slot_frees_the_users_number(intake: SqlIntake) -> None:
    await intake.stock(10)
    await intake.configure(max_per_user=2)
    first, _ = await intake.reserve("u", "u")
    await intake.conn.fetch(
        "select * from intake_release($1, $2, 'test')", [first.resource_id], [first.reservation_id]
    )
    assert [a.outcome for a in await intake.reserve("u", "u")] == ["reserved", "limit_reached"]
    numbers = await intake.conn.fetch("select user_nth from inventory_slots where locked_by = 'u'")
    assert sorted(row[0] for row in numbers) == [1, 2]


async def test_a_limit_that_comes_later_counts_what_is_held(intake: SqlIntake) -> None:
    await intake.stock(10)
    await intake.reserve("u", "u", "v")
    await intake.configure(max_per_user=2)
    answers = await intake.reserve("u", "v", "v", "w")
    assert [a.outcome for a in answers] == [
        "limit_reached",
        "reserved",
        "limit_reached",
        "reserved",
    ]


async def test_a_user_may_hold_more_than_a_thousand_slots(intake: SqlIntake) -> None:
    await intake.stock(2100)
    for part in range(3):
        answers = await intake.reserve(*["u"] * 700, requests=[f"{part}-{n}" for n in range(700)])
        assert {a.outcome for a in answers} == {"reserved"}
    (again,) = await intake.reserve("u", requests=["0-0"])
    assert again.outcome == "again"


@pytest.mark.parametrize(
    "settings",
    [
        {"is_active": False},
        {"opens_at": "2099-01-01T00:00:00Z"},
        {"opens_at": "2001-01-01T00:00:00Z", "closes_at": "2002-01-01T00:00:00Z"},
    ],
)
async def test_a_pool_that_is_not_open_does_not_sell(
    intake: SqlIntake, settings: dict[str, object]
) -> None:
    await intake.stock(5)
    (before,) = await intake.reserve("u", requests=["r"])
    await intake.configure(**settings)
    with pytest.raises(asyncpg.PostgresError) as caught:
        await intake.buy("v")
    assert caught.value.sqlstate == "PN304"
    (again,) = await intake.reserve("u", requests=["r"])
    assert (again.outcome, again.resource_id) == ("again", before.resource_id)


async def test_a_hold_is_written_where_the_pool_has_one(intake: SqlIntake) -> None:
    await intake.stock(1)
    await intake.configure(hold_s=60)
    slot = await intake.slot(await intake.buy("u"))
    assert (slot["hold_expires_at"] - slot["locked_at"]).total_seconds() == 60


@pytest.mark.parametrize(
    ("users", "requests"),
    [([], None), ([""], None), ([None], None), (["u"], ["a", "b"]), (["u"], [""])],
)
async def test_malformed_claims_are_refused(
    intake: SqlIntake, users: list[str], requests: list[str] | None
) -> None:
    await intake.stock(1)
    with pytest.raises(asyncpg.InvalidParameterValueError):
        await intake.conn.fetch("select * from intake_reserve($1, $2, $3)", POOL, users, requests)
    assert await intake.depth() == 0


async def as_buyer(conn: Connection, sub: str, role: str = "penstock_intake_ingest") -> None:
    await conn.execute(f"set role {role}")
    await conn.execute(
        "select set_config('request.jwt.claims', $1, false)", json.dumps({"sub": sub})
    )


async def test_a_token_allows_claims_for_its_own_user_only(intake: SqlIntake) -> None:
    await intake.stock(5)
    await as_buyer(intake.conn, "alice")
    assert await intake.buy("alice") is not None
    with pytest.raises(asyncpg.PostgresError) as caught:
        await intake.buy("bob")
    assert caught.value.sqlstate == "PN702"
    with pytest.raises(asyncpg.PostgresError):
        await intake.reserve("alice", "bob")


async def test_a_token_without_subject_allows_nothing(intake: SqlIntake) -> None:
    await intake.stock(5)
    await as_buyer(intake.conn, "")
    with pytest.raises(asyncpg.PostgresError) as caught:
        await intake.buy("")
    assert caught.value.sqlstate in {"PN702", "22023"}
    with pytest.raises(asyncpg.PostgresError) as caught:
        await intake.buy("bob")
    assert caught.value.sqlstate == "PN702"


async def test_the_service_may_claim_for_anyone(intake: SqlIntake) -> None:
    await intake.stock(5)
    await as_buyer(intake.conn, "service", "penstock_intake_executor")
    assert await intake.buy("bob") is not None


async def test_status_tells_a_buyer_of_own_reservations_only(intake: SqlIntake) -> None:
    await intake.stock(5)
    mine, theirs = await intake.reserve("alice", "bob")
    await as_buyer(intake.conn, "alice")
    status = "select state from intake_status($1)"
    assert await intake.conn.fetchval(status, mine.reservation_id) == "RESERVED"
    assert await intake.conn.fetchval(status, theirs.reservation_id) is None
    assert await intake.conn.fetchval(status, uuid4()) is None


async def test_many_simultaneous_claims_sell_exactly_the_stock(
    intake: SqlIntake, database_url: str
) -> None:
    """Common users in many batches: no deadlock, no oversale, one slot per request."""
    await intake.stock(60)
    await intake.configure(max_per_user=1)
    pool = await asyncpg.create_pool(database_url, min_size=8, max_size=8)
    async with pool:

        async def batch(number: int) -> list[asyncpg.Record]:
            users = [f"u{(number * 7 + k * 13) % 80}" for k in range(12)]
            async with pool.acquire() as conn:
                return await conn.fetch(
                    "select * from intake_reserve($1, $2, $3)", POOL, users, users
                )

        for _ in range(3):
            answers = await asyncio.gather(*(batch(number) for number in range(40)))
        assert {row["outcome"] for rows in answers for row in rows} <= {"again", "sold_out", "busy"}
    assert await intake.counts() == (0, 60, 0)
    held = "select count(distinct locked_by) from inventory_slots where locked_by is not null"
    assert await intake.conn.fetchval(held) == 60
    assert await intake.violations() == []


async def test_where_the_roles_are_missing_a_token_still_speaks_for_its_own_user_only(
    intake: SqlIntake,
) -> None:
    """As installed without roles: the role that is asked for is not there."""
    await intake.stock(5)
    definition: str = await intake.conn.fetchval(
        "select pg_get_functiondef('penstock_intake.may_act_for'::regproc)"
    )
    assert "'penstock_intake_executor'" in definition
    await intake.conn.execute(
        definition.replace("'penstock_intake_executor'", "'absent'").replace(
            "'penstock_operator'", "'absent'"
        )
    )
    await as_buyer(intake.conn, "alice")
    assert await intake.buy("alice") is not None
    with pytest.raises(asyncpg.PostgresError) as caught:
        await intake.buy("bob")
    assert caught.value.sqlstate == "PN702"
