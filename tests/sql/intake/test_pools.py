"""Pools: settings are audited, watermarks are kept and never hide a slot."""

import json

import asyncpg
import pytest
from tests.support.intake import POOL, SqlIntake


async def mark(intake: SqlIntake, pool: str = POOL) -> int:
    found: int = await intake.conn.fetchval(
        "select pg_sequence_last_value(watermark) from penstock_intake.pool_mark "
        "where pool_id = $1",
        pool,
    )
    return found


async def test_settings_change_by_name_and_leave_an_audit_row(intake: SqlIntake) -> None:
    await intake.configure(batch_size=7, max_per_user=3)
    await intake.configure(max_retries=2)
    row = await intake.conn.fetchrow(
        "select * from engine_config join intake_pools using (pool_id)"
    )
    assert row is not None
    assert (row["batch_size"], row["max_retries"], row["max_per_user"]) == (7, 2, 3)
    logged = await intake.conn.fetch("select row_data from audit.audit_logs order by at")
    assert json.loads(logged[1][0])["settings"] == {"max_retries": 2}


@pytest.mark.parametrize(
    "settings", [{"batchsize": 1}, {"pool_id": "x"}, {"batch_size": 0}, {"max_per_user": 0}]
)
async def test_wrong_settings_change_nothing(
    intake: SqlIntake, settings: dict[str, object]
) -> None:
    with pytest.raises(asyncpg.PostgresError):
        await intake.configure(**settings)
    assert await intake.conn.fetchval("select count(*) from engine_config") == 0


async def test_open_close_and_schedule(intake: SqlIntake) -> None:
    await intake.stock(5)
    policy = "select is_open from penstock_intake.pool_policy('demo')"
    await intake.conn.execute("select intake_pool_close('demo', 'stop')")
    assert not await intake.conn.fetchval(policy)
    await intake.conn.execute("select intake_pool_open('demo', 'go')")
    assert await intake.conn.fetchval(policy)
    await intake.conn.execute(
        "select intake_pool_schedule('demo', now() + interval '1 hour', null, 'later')"
    )
    assert not await intake.conn.fetchval(policy)
    await intake.shift(3700)
    assert await intake.conn.fetchval(policy)


async def test_the_watermark_follows_the_sale(intake: SqlIntake) -> None:
    await intake.stock(10)
    await intake.reserve(*"abc")
    await intake.tend()
    assert await mark(intake) == 3
    await intake.reserve(*"defghij")
    await intake.tend()
    assert await mark(intake) == 10
    assert [a.outcome for a in await intake.reserve("k")] == ["sold_out"]
    await intake.stock(1)
    assert [a.outcome for a in await intake.reserve("k")] == ["reserved"]


async def test_a_claim_that_had_a_long_way_shortens_it_for_the_next(intake: SqlIntake) -> None:
    await intake.stock(600)
    await intake.reserve(*(f"u{n}" for n in range(300)))
    assert await mark(intake) == 0
    await intake.reserve("late")
    assert await mark(intake) == 300


async def test_what_a_transaction_claimed_and_undid_is_not_passed(intake: SqlIntake) -> None:
    await intake.stock(600)
    await intake.reserve(*(f"u{n}" for n in range(300)))
    undone = intake.conn.transaction()
    await undone.start()
    await intake.reserve(*(f"v{n}" for n in range(290)))
    await intake.reserve("v290")
    await undone.rollback()
    answers = await intake.reserve(*(f"w{n}" for n in range(300)))
    assert {answer.outcome for answer in answers} == {"reserved"}


async def test_a_watermark_that_a_restore_left_too_high_is_mended(intake: SqlIntake) -> None:
    await intake.stock(3)
    await intake.conn.execute("select setval(watermark, 99) from penstock_intake.pool_mark")
    assert await intake.buy("u") is None
    await intake.conn.execute("select setval('penstock.intake_net', 0)")
    assert (await intake.tend())["reaped"] == 1
    assert await intake.buy("u") is not None


async def test_tend_does_nothing_in_a_stricter_isolation_level(intake: SqlIntake) -> None:
    await intake.stock(3)
    await intake.reserve("a")
    async with intake.conn.transaction(isolation="repeatable_read"):
        await intake.tend()
    assert await mark(intake) == 0


async def test_tend_is_a_no_op_when_it_ran_a_moment_ago(intake: SqlIntake) -> None:
    await intake.stock(3)
    await intake.reserve("a")
    await intake.conn.execute(
        "select setval('penstock.intake_lease', penstock.milliseconds(clock_timestamp()) + 60000)"
    )
    await intake.conn.fetch("select * from intake_tend(false)")
    assert await mark(intake) == 0
    await intake.conn.fetch("select * from intake_tend(true)")
    assert await mark(intake) == 1
